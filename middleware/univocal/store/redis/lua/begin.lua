#!lua flags=no-cluster
-- KEYS: lock, log, entry. ARGV: token, milliseconds that others wait, milliseconds a lease lives, whether
-- alone, the entry's last commit as it was seen. Gives {1, 0}: begun; {0, n}: another leads for n milliseconds
-- more; {2, 0}: the entry has changed.

local lock, log, entry, now = KEYS[1], KEYS[2], KEYS[3], milliseconds()
for _, name in ipairs(KEYS) do sound(name, 'hash') end
-- Tokens of nodes that died go with the lock; no more than these wait for that.
if redis.call('HLEN', lock) > 10000 then redis.call('DEL', lock) end
-- Who began before the entry was deleted by hand, or evicted, stores nothing.
if not undisturbed(lock, entry, now) then redis.call('DEL', lock) end
if ARGV[4] == '1' then
  if (redis.call('HGET', entry, 'v') or '') ~= ARGV[5] then return {2, 0} end
  local leader = redis.call('HGET', lock, 'leader')
  local value = leader and redis.call('HGET', lock, leader)
  if value then
    local deadline, id, number = lease(value)
    if deadline and deadline > now and holds(log, id, number) then
      redis.call('HSET', lock, 'waited', 1)
      return {0, deadline - now}
    end
  end
  redis.call('HSET', lock, 'leader', ARGV[1])
  redis.call('HDEL', lock, 'waited')
end
local id = redis.call('HGET', log, 'id')
if not id then
  id = ARGV[1]
  redis.call('HSET', log, 'id', id, 'number', 0, 'floor', 0)
end
redis.call('PEXPIRE', log, 2 * ARGV[3])
local number = redis.call('HGET', log, 'number') or 0
local value = string.format('%d %s %s', now + ARGV[2], id, number)
redis.call('HSET', lock, 'entry', left(entry, now), ARGV[1], value)
redis.call('PEXPIRE', lock, ARGV[3])
return {1, 0}
