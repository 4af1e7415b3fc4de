-- How an entry is read, and what is removed of it.

local function finite(text)
  local value = string.match(text, '^%-?%d[%de.+-]*$') and tonumber(text)
  return value and value - value == 0 and value or nil
end

-- What a description says; if it cannot be read, it has no `fresh` and no tags.
local function read(text)
  local unreadable = {text = text, tags = {}}
  local line, stop = string.match(text, '^([^\n]*)()\n')
  if not line then return unreadable end
  local whole, fresh, received, usable, count =
    string.match(line, '^%d+ ([wp]) (%S+) (%S+) (%S+) (%d%d?%d?%d?)$')
  if not whole then return unreadable end
  local one = {text = text, line = line, whole = whole == 'w', tags = {}}
  one.fresh, one.received, one.usable = finite(fresh), finite(received), finite(usable)
  if not (one.fresh and one.received and one.usable) then return unreadable end
  local position = stop + 1
  for i = 1, tonumber(count) do
    local length, start = string.match(text, '^(%d+):()', position)
    if not length then return unreadable end
    position = start + tonumber(length)
    one.tags[i] = string.sub(text, start, position - 1)
  end
  return one
end

-- The responses of an entry by their variants. Its fields: descriptions m…, contents b…, the token of the
-- last commit v, that of the commit which created it g.
local function responses(entry)
  sound(entry, 'hash')
  local found = {}
  for _, field in ipairs(redis.call('HKEYS', entry)) do
    if string.sub(field, 1, 1) == 'm' then
      found[string.sub(field, 2)] = read(redis.call('HGET', entry, field))
    end
  end
  return found
end

local function has(held, tag)
  for _, one in pairs(held) do
    for _, its in ipairs(one.tags) do
      if its == tag then return true end
    end
  end
  return false
end

-- Remove responses of an entry, and its key from the tags that nothing kept has.
local function forget(entry, gone, kept)
  for variant, one in pairs(gone) do
    redis.call('HDEL', entry, 'm' .. variant, 'b' .. variant)
    for _, tag in ipairs(one.tags) do
      if not has(kept, tag) then redis.pcall('ZREM', root .. 't:' .. tag, key_of(entry)) end
    end
  end
end

-- Remove of an entry what is concerned, or mark it stale as of `soft`: the number of responses, and what is
-- left. A change that the tracking tells to every node; the leases of the key know of it.
local function purge(entry, soft, concerned)
  local gone, kept, found = {}, {}, 0
  for variant, one in pairs(responses(entry)) do
    if not concerned(one, variant) then
      kept[variant] = one
    elseif soft ~= '' and one.fresh then
      kept[variant], found = one, found + 1
      local text = one.text
      if one.fresh > tonumber(soft) then
        local before, after = string.match(one.line, '^(%d+ [wp] )%S+( .*)$')
        text = before .. soft .. after .. string.sub(text, #one.line + 1)
      end
      redis.call('HSET', entry, 'm' .. variant, text)
    else
      gone[variant], found = one, found + 1
    end
  end
  forget(entry, gone, kept)
  if next(kept) == nil then
    redis.call('DEL', entry)
    local lock = root .. 'l:' .. key_of(entry)
    sound(lock, 'hash')
    if redis.call('EXISTS', lock) == 1 then redis.call('HSET', lock, 'entry', '') end
  end
  return found, kept
end
