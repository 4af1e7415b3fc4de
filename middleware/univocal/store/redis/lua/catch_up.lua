#!lua flags=no-writes
-- KEYS: head, log, last, how. ARGV: above which number, how many. Gives the number of the last purge, then names'
-- last numbers and purges, in order. Gives nothing where some of them are lost.

if not complete(KEYS) then return {} end
local head = redis.call('HMGET', KEYS[1], 'number', 'horizon')
if not (head[1] and head[2]) or tonumber(ARGV[1]) < tonumber(head[2]) then return {} end
local found = {tonumber(head[1])}
local names = redis.call('ZRANGE', KEYS[3], '(' .. ARGV[1], '+inf', 'BYSCORE', 'LIMIT', 0, ARGV[2], 'WITHSCORES')
for i = 1, #names, 2 do
  found[#found + 1] = tonumber(names[i + 1])
  found[#found + 1] = redis.call('HGET', KEYS[4], names[i])
end
return found
