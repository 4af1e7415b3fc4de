-- How an entry is read. Its fields: m… describes a response, b… is its content. A description begins with a line:
-- number octets received fresh usable w|p, where `octets` are those of the content, and the times are seconds.

local function described(text)
  local one = {text = text}
  local number, octets, received, fresh, usable, whole =
    string.match(text, '^(%d+) (%d+) ([%d.]+) (%-?[%d.]+) ([%d.]+) ([wp])\n')
  one.octets, one.received, one.fresh = tonumber(octets), tonumber(received), tonumber(fresh)
  one.usable, one.whole = tonumber(usable), whole == 'w'
  return one.octets and one.received and one.fresh and one.usable and one
end

-- The responses of an entry, by their variants; of another kind of value there are none.
local function responses(entry)
  local names = redis.pcall('HKEYS', entry)
  if names.err then return {}, true end
  local wanted, held = {}, {}
  for _, name in ipairs(names) do
    if string.sub(name, 1, 1) == 'm' then wanted[#wanted + 1] = name end
  end
  if #wanted == 0 then return held, #names > 0 end
  for place, text in ipairs(redis.call('HMGET', entry, unpack(wanted))) do
    local one = described(text or '')
    if one then held[string.sub(wanted[place], 2)] = one end
  end
  return held, false
end
