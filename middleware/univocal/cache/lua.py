"""What the scripts of the shared tier have in common: the namespace they work in, how an entry is read."""

from __future__ import annotations

from typing import Final

__all__ = ["ENTRIES", "LEASES", "MOVED", "script"]

# How the error begins of a script that was called for another namespace than the one the marker names.
MOVED: Final = "NAMESPACE"

_NAMESPACE: Final = (
    r"""
if redis.pcall('GET', KEYS[1]) ~= ARGV[1] then
  return redis.error_reply('"""
    + MOVED
    + r""" is another one than this node attached to')
end
local root = table.remove(ARGV, 1)
table.remove(KEYS, 1)

-- What stands behind a name's kind: a cache key.
local function key_of(name) return string.sub(name, #root + 3) end

-- What is of another kind than it has to be is of no use, and in the way.
local function sound(name, kind)
  local found = redis.call('TYPE', name).ok
  if found ~= kind and found ~= 'none' then redis.call('DEL', name) end
end

-- Every node hears of a notice.
local function tell(notice)
  redis.call('SET', notice, 1)
  redis.call('DEL', notice)
end
"""
)


def script(flags: str, *parts: str) -> str:
    """A script of Redis 7.0 or later; its first key is the marker, its first argument the namespace."""
    return "\n".join([f"#!lua flags=no-cluster{flags}", _NAMESPACE, *parts])


ENTRIES: Final = r"""
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
    if not concerned(one) then
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
"""

LEASES: Final = r"""
local function milliseconds()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- What a lease's field says: its deadline, its log, the last purge before it.
local function lease(value)
  local deadline, id, number = string.match(value, '^(%d+) (%x+) (%d+)$')
  return tonumber(deadline), id, tonumber(number)
end

-- Whether no purge of everything, or of a prefix, ended a lease.
local function holds(log, id, number)
  local known = redis.call('HMGET', log, 'id', 'floor')
  return known[1] == id and number >= (tonumber(known[2] or 0) or 0)
end

-- The log's fields that speak of a response of an origin with a tag.
local function fields(origin, tag) return {'t\0' .. tag, 't' .. origin .. '\0' .. tag} end

-- An entry as it is left, for the lock's field `entry`: which commit created it, and when it expires.
local function left(entry, now)
  local created = redis.call('HGET', entry, 'g')
  return created and string.format('%s %d', created, now + redis.call('PTTL', entry)) or ''
end

-- Whether an entry is the one that was left, or has expired since.
local function undisturbed(lock, entry, now)
  local is = redis.call('HGET', entry, 'g')
  local created, expires = string.match(redis.call('HGET', lock, 'entry') or '', '^(%x+) (%d+)$')
  if is then return is == created end
  return not created or now >= tonumber(expires)
end

-- Take a lease out of its lock, whose last one takes the lock along: whether another waited for it.
local function ended(lock, token)
  local waited = false
  redis.call('HDEL', lock, token)
  if redis.call('HGET', lock, 'leader') == token then
    waited = redis.call('HDEL', lock, 'leader', 'waited') == 2
  end
  if redis.call('HLEN', lock) == redis.call('HEXISTS', lock, 'entry') then redis.call('DEL', lock) end
  return waited
end
"""
