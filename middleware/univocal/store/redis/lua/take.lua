-- Take a key's fetch lock: 0 and the token if it was free, else the milliseconds for which another has it,
-- and whose.
local function take(lock, token, life)
  if redis.call('SET', lock, token, 'NX', 'PX', life) then return 0, token end
  return math.max(redis.call('PTTL', lock), 1), redis.call('GET', lock)
end
