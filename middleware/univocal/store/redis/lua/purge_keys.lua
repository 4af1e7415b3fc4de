#!lua flags=no-cluster,allow-oom
-- KEYS: the lock of the spared lease, then entries. ARGV: the spared token, since when they are stale ("" to
-- remove them). Gives the number of responses.

local mine, found, soft = KEYS[1], 0, ARGV[2]
sound(mine, 'hash')
local spared, rest = redis.call('HGET', mine, ARGV[1]), redis.call('PTTL', mine)
for i = 2, #KEYS do
  local entry = KEYS[i]
  redis.call('DEL', root .. 'l:' .. key_of(entry))
  local meant = purge(entry, soft, function() return true end)
  found = found + meant
  -- Every node hears of it, whatever it holds that Redis does not.
  if soft ~= '' then
    tell(root .. 'x:ks' .. key_of(entry))
  elseif meant == 0 then
    tell(entry)
  end
end
if spared then
  local entry = root .. 'e:' .. key_of(mine)
  redis.call('HSET', mine, ARGV[1], spared, 'entry', left(entry, milliseconds()))
  redis.call('PEXPIRE', mine, rest)
end
return found
