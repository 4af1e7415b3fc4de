#!lua flags=allow-oom
-- KEYS: head, log, last, how. ARGV: the purge, most entries of the log, most names of what was purged, whether
-- everything is, the history of the journal, then names and how each is purged. Gives the purge's number; 0 where
-- that journal is not.

local head = KEYS[1]
if redis.call('HGET', head, 'history') ~= ARGV[5] then return 0 end
local number = redis.call('HINCRBY', head, 'number', 1)
local written = string.format('%.0f', number)
redis.call('HSET', head, 'written', redis.call('TIME')[1])
redis.call('XADD', KEYS[2], 'MAXLEN', '~', ARGV[2], written .. '-0', 'p', ARGV[1])
if ARGV[4] == '1' then
  redis.call('DEL', KEYS[3], KEYS[4])
  redis.call('HSET', head, 'horizon', written, 'names', 0)
  return number
end
if not complete(KEYS) then
  redis.call('DEL', KEYS[3], KEYS[4])
  redis.call('HSET', head, 'horizon', string.format('%.0f', number - 1))
end
for i = 6, #ARGV, 2 do
  redis.call('ZADD', KEYS[3], written, ARGV[i])
  redis.call('HSET', KEYS[4], ARGV[i], ARGV[i + 1])
end
local excess = redis.call('ZCARD', KEYS[3]) - tonumber(ARGV[3])
if excess > 0 then
  local gone = redis.call('ZPOPMIN', KEYS[3], excess + 100)
  for i = 1, #gone, 2 do redis.call('HDEL', KEYS[4], gone[i]) end
  redis.call('HSET', head, 'horizon', gone[#gone])
end
redis.call('HSET', head, 'names', redis.call('ZCARD', KEYS[3]))
return number
