#!lua flags=no-cluster,allow-oom
-- KEYS: log, the lock of the spared lease, the notices to give. ARGV: a new id, the spared token, whether
-- every lease ends, the origin (empty: any), tags. Done first, so that nothing fetched before is stored after.
-- The spared lease outlives this purge: it is that of the response which caused it.

local log, lock = KEYS[1], KEYS[2]
sound(log, 'hash')
sound(lock, 'hash')
-- A log that has grown too long begins anew: no live lease outlives that.
if redis.call('HLEN', log) > 10000 then redis.call('DEL', log) end
if not redis.call('HGET', log, 'id') then
  redis.call('HSET', log, 'id', ARGV[1], 'number', 0, 'floor', 0)
  redis.call('PEXPIRE', log, 600000)
end
local number = redis.call('HINCRBY', log, 'number', 1)
if ARGV[3] == '1' then redis.call('HSET', log, 'floor', number) end
for i = 5, #ARGV do
  redis.call('HSET', log, fields(ARGV[4], ARGV[i])[2], number)
  sound(root .. 't:' .. ARGV[i], 'zset')
end
local spared = redis.call('HGET', lock, ARGV[2])
if spared then
  local deadline, id = lease(spared)
  redis.call('HSET', lock, ARGV[2], string.format('%d %s %s', deadline, id, number))
end
for i = 3, #KEYS do tell(KEYS[i]) end
return number
