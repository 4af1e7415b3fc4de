-- Tell whether all names of purges are there that were written: Redis may have evicted `last`, `how` or both.
local function complete(keys)
  local names = tonumber(redis.call('HGET', keys[1], 'names') or 0)
  return redis.pcall('ZCARD', keys[3]) == names and redis.pcall('HLEN', keys[4]) == names
end
