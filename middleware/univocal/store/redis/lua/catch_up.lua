#!lua flags=no-writes
-- KEYS: last, how. ARGV: above which number, up to which, how many. Gives names' last numbers and purges, in order.

local found = {}
local names = redis.call('ZRANGE', KEYS[1], '(' .. ARGV[1], ARGV[2], 'BYSCORE', 'LIMIT', 0, ARGV[3], 'WITHSCORES')
for i = 1, #names, 2 do
  found[#found + 1] = tonumber(names[i + 1])
  found[#found + 1] = redis.call('HGET', KEYS[2], names[i])
end
return found
