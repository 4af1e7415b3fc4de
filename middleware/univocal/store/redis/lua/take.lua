-- Take the turn to fetch a key: 0 and the token if it was free, else the milliseconds for which it is another's,
-- and whose.
local function take(turn, token, life)
  if redis.call('SET', turn, token, 'NX', 'PX', life) then return 0, token end
  return math.max(redis.call('PTTL', turn), 1), redis.call('GET', turn)
end
