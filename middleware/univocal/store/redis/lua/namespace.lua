-- The namespace that a script works in: its first key is the marker, its first argument the namespace.
-- The first word of the error is `MOVED` in scripts.py.

if redis.pcall('GET', KEYS[1]) ~= ARGV[1] then
  return redis.error_reply('NAMESPACE is another one than this node attached to')
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
