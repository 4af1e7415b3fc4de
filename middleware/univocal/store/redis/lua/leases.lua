-- Leases in the lock of a key, and the log of purges that ends them.

local function milliseconds()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- What a lease's field says: its deadline, its log, the last purge before it.
local function lease(value)
  local deadline, id, number = string.match(value, '^(%d+) (%x+) (%d+)$')
  return tonumber(deadline), id, tonumber(number)
end

-- Whether no purge of everything, or of a prefix, ended a lease.
local function holds(log, id, number)
  local known = redis.call('HMGET', log, 'id', 'floor')
  return known[1] == id and number >= (tonumber(known[2] or 0) or 0)
end

-- The log's fields that speak of a response of an origin with a tag.
local function fields(origin, tag) return {'t\0' .. tag, 't' .. origin .. '\0' .. tag} end

-- An entry as it is left, for the lock's field `entry`: which commit created it, and when it expires.
local function left(entry, now)
  local created = redis.call('HGET', entry, 'g')
  return created and string.format('%s %d', created, now + redis.call('PTTL', entry)) or ''
end

-- Whether an entry is the one that was left, or has expired since.
local function undisturbed(lock, entry, now)
  local is = redis.call('HGET', entry, 'g')
  local created, expires = string.match(redis.call('HGET', lock, 'entry') or '', '^(%x+) (%d+)$')
  if is then return is == created end
  return not created or now >= tonumber(expires)
end

-- Take a lease out of its lock, whose last one takes the lock along: whether another waited for it.
local function ended(lock, token)
  local waited = false
  redis.call('HDEL', lock, token)
  if redis.call('HGET', lock, 'leader') == token then
    waited = redis.call('HDEL', lock, 'leader', 'waited') == 2
  end
  if redis.call('HLEN', lock) == redis.call('HEXISTS', lock, 'entry') then redis.call('DEL', lock) end
  return waited
end
