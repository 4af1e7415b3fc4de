#!lua flags=allow-oom
-- KEYS: entry. ARGV: variants, each with its description and another one for it, "" to remove the response. What
-- has another description by now stays.

for i = 1, #ARGV, 3 do
  if redis.call('HGET', KEYS[1], 'm' .. ARGV[i]) == ARGV[i + 1] then
    if ARGV[i + 2] == '' then
      redis.call('HDEL', KEYS[1], 'm' .. ARGV[i], 'b' .. ARGV[i])
    else
      redis.call('HSET', KEYS[1], 'm' .. ARGV[i], ARGV[i + 2])
    end
  end
end
return 0
