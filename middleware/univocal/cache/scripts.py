"""What Redis does in one step each: the scripts of the shared tier (Lua 5.1; Redis 7.0, Valkey 7.2 or later).

Names and octets of others come as KEYS and ARGV alone. A lease is a field of its key's lock: its token, with
`deadline id number`. Until the deadline (milliseconds) others wait for it if it is the lock's leader; `id`
and `number` say after which purge of the log it began. Without that log, or in another one, no lease holds:
what Redis evicts makes a commit fail, never succeed.
"""

from __future__ import annotations

from typing import Final

__all__ = ["BEGIN", "COMMIT", "DROP", "LOOKUP", "NOTE", "PURGE_KEYS", "RELEASE"]

_DESCRIPTION: Final = r"""
-- The first line of a description: whole, fresh_until, response_time, usable_until, number of tags, its end.
local function first_line(described)
  local stop = string.find(described, '\n', 1, true)
  if not stop then return nil end
  local line = string.sub(described, 1, stop - 1)
  local whole, fresh, received, usable, tags = string.match(line, '^%d+ ([wp]) (%S+) (%S+) (%S+) (%d+)$')
  fresh, received, usable = tonumber(fresh), tonumber(received), tonumber(usable)
  if not (whole and fresh and received and usable) then return nil end
  return whole == 'w', fresh, received, usable, tonumber(tags), stop
end

-- The tags of a description; nil if it cannot be read.
local function tags_of(described)
  local whole, fresh, received, usable, count, position = first_line(described)
  if whole == nil then return nil end
  local found = {}
  for i = 1, count do
    local colon = string.find(described, ':', position + 1, true)
    local length = colon and tonumber(string.sub(described, position + 1, colon - 1))
    if not length then return nil end
    found[i] = string.sub(described, colon + 1, colon + length)
    position = colon + length
  end
  return found
end

-- Descriptions have the fields m…, contents b…, the last commit's token v.
local function described_in(entry)
  if redis.call('TYPE', entry).ok ~= 'hash' then redis.call('DEL', entry) end
  local found = {}
  for _, field in ipairs(redis.call('HKEYS', entry)) do
    if string.sub(field, 1, 1) == 'm' then found[#found + 1] = string.sub(field, 2) end
  end
  return found
end

-- Remove one response, or mark it stale as of `soft`; a change that the tracking tells to every node.
local function drop(entry, id, described, soft)
  local whole, fresh, received, usable, count, stop = first_line(described)
  if soft == '' or whole == nil then
    redis.call('HDEL', entry, 'm' .. id, 'b' .. id)
    return
  end
  if fresh > tonumber(soft) then
    local before, after = string.match(string.sub(described, 1, stop - 1), '^(%d+ [wp] )%S+( .*)$')
    described = before .. soft .. after .. string.sub(described, stop)
  end
  redis.call('HSET', entry, 'm' .. id, described)
end

"""

_LEASES: Final = r"""
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
  return known[1] == id and number >= tonumber(known[2] or 0)
end
"""

# KEYS: entry. ARGV: cache key, what stands before a tag. Gives the last commit's token, then descriptions and
# contents. What its tags no longer lead to (Redis evicted the index) could not be purged: it is a miss.
LOOKUP: Final = (
    _DESCRIPTION
    + r"""
local all, held, found = redis.call('HGETALL', KEYS[1]), {}, {}
for i = 1, #all, 2 do held[all[i]] = all[i + 1] end
local function indexed(described)
  for _, tag in ipairs(tags_of(described) or {}) do
    if not redis.call('ZSCORE', ARGV[2] .. tag, ARGV[1]) then return false end
  end
  return true
end
found[1] = held['v'] or ''
for field, value in pairs(held) do
  local body = string.sub(field, 1, 1) == 'm' and held['b' .. string.sub(field, 2)]
  if body and indexed(value) then
    found[#found + 1] = value
    found[#found + 1] = body
  end
end
return found
"""
)

# KEYS: lock, log, entry. ARGV: token, milliseconds that others wait, milliseconds a lease lives, whether
# alone, the entry's last commit as it was seen. Gives {1, 0}: begun; {0, n}: another leads for n milliseconds
# more; {2, 0}: the entry has changed.
BEGIN: Final = (
    _LEASES
    + r"""
local now = milliseconds()
-- Tokens of nodes that died go with the lock; no more than these wait for that.
if redis.call('HLEN', KEYS[1]) > 10000 then redis.call('DEL', KEYS[1]) end
if ARGV[4] == '1' then
  if (redis.call('HGET', KEYS[3], 'v') or '') ~= ARGV[5] then return {2, 0} end
  local leader = redis.call('HGET', KEYS[1], 'leader')
  local value = leader and redis.call('HGET', KEYS[1], leader)
  if value then
    local deadline, id, number = lease(value)
    if deadline and deadline > now and holds(KEYS[2], id, number) then
      redis.call('HSET', KEYS[1], 'waited', 1)
      return {0, deadline - now}
    end
  end
  redis.call('HSET', KEYS[1], 'leader', ARGV[1])
  redis.call('HDEL', KEYS[1], 'waited')
end
local id = redis.call('HGET', KEYS[2], 'id')
if not id then
  id = ARGV[1]
  redis.call('HSET', KEYS[2], 'id', id, 'number', 0, 'floor', 0)
end
redis.call('PEXPIRE', KEYS[2], 2 * ARGV[3])
local number = redis.call('HGET', KEYS[2], 'number') or 0
redis.call('HSET', KEYS[1], ARGV[1], string.format('%d %s %s', now + ARGV[2], id, number))
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return {1, 0}
"""
)

# KEYS: lock, log, entry, the name of each tag. ARGV: token, variant, description, content, milliseconds to
# keep, cache key, most variants; then the log's fields that speak of the response. Gives 1 if it is stored.
COMMIT: Final = (
    _DESCRIPTION
    + _LEASES
    + r"""
local value = redis.call('HGET', KEYS[1], ARGV[1])
if not value then return 0 end
local deadline, id, number = lease(value)
if not number or not holds(KEYS[2], id, number) then return 0 end
for i = 8, #ARGV do
  if tonumber(redis.call('HGET', KEYS[2], ARGV[i]) or 0) > number then return 0 end
end

local entry, now = KEYS[3], milliseconds()
if redis.call('TYPE', entry).ok ~= 'hash' then redis.call('DEL', entry) end
local whole, fresh, received = first_line(ARGV[3])
local old = redis.call('HGET', entry, 'm' .. ARGV[2])
if old and not whole then
  local old_whole, old_fresh = first_line(old)
  if old_whole and old_fresh > received then return 0 end
end
if redis.call('HLEN', entry) > 2 * ARGV[7] then
  -- As many variants as there may be: those go that are of no use, or else the oldest.
  local oldest, since
  for _, other in ipairs(described_in(entry)) do
    local read, its_fresh, its_received, usable = first_line(redis.call('HGET', entry, 'm' .. other))
    if read == nil or usable * 1000 < now then
      redis.call('HDEL', entry, 'm' .. other, 'b' .. other)
    elseif not since or its_received < since then
      oldest, since = other, its_received
    end
  end
  if redis.call('HLEN', entry) > 2 * ARGV[7] then redis.call('HDEL', entry, 'm' .. oldest, 'b' .. oldest) end
end

redis.call('HSET', entry, 'v', ARGV[1], 'm' .. ARGV[2], ARGV[3], 'b' .. ARGV[2], ARGV[4])
local keep = tonumber(ARGV[5])
if redis.call('PTTL', entry) < keep then redis.call('PEXPIRE', entry, keep) end
for i = 4, #KEYS do
  redis.call('ZREMRANGEBYSCORE', KEYS[i], '-inf', now)
  if now + keep > tonumber(redis.call('ZSCORE', KEYS[i], ARGV[6]) or 0) then
    redis.call('ZADD', KEYS[i], now + keep, ARGV[6])
  end
  if redis.call('PTTL', KEYS[i]) < keep then redis.call('PEXPIRE', KEYS[i], keep) end
end
redis.call('HDEL', KEYS[1], ARGV[1])
if redis.call('HGET', KEYS[1], 'leader') == ARGV[1] then redis.call('HDEL', KEYS[1], 'leader', 'waited') end
return 1
"""
)

# KEYS: lock, the notice of a fruitless fetch. ARGV: token. Who waits for this lease is told.
RELEASE: Final = r"""
if redis.call('HDEL', KEYS[1], ARGV[1]) == 0 then return 0 end
if redis.call('HGET', KEYS[1], 'leader') == ARGV[1] then
  if redis.call('HDEL', KEYS[1], 'leader', 'waited') == 2 then
    redis.call('SET', KEYS[2], 1)
    redis.call('DEL', KEYS[2])
  end
end
return 1
"""

# KEYS: log, the lock of the spared lease, the notices to give. ARGV: a new id, the spared token, whether
# every lease ends; then the log's fields to set. Done first, so that nothing fetched before is stored after.
# The spared lease outlives this purge: it is that of the response which caused it.
NOTE: Final = r"""
-- A log that has grown too long begins anew: no live lease outlives that.
if redis.call('HLEN', KEYS[1]) > 10000 then redis.call('DEL', KEYS[1]) end
if redis.call('EXISTS', KEYS[1]) == 0 then
  redis.call('HSET', KEYS[1], 'id', ARGV[1], 'number', 0, 'floor', 0)
  redis.call('PEXPIRE', KEYS[1], 600000)
end
local number = redis.call('HINCRBY', KEYS[1], 'number', 1)
if ARGV[3] == '1' then redis.call('HSET', KEYS[1], 'floor', number) end
for i = 4, #ARGV do redis.call('HSET', KEYS[1], ARGV[i], number) end
local spared = redis.call('HGET', KEYS[2], ARGV[2])
if spared then
  local deadline, id = string.match(spared, '^(%d+) (%x+)')
  redis.call('HSET', KEYS[2], ARGV[2], string.format('%s %s %s', deadline, id, number))
end
for i = 3, #KEYS do
  redis.call('SET', KEYS[i], 1)
  redis.call('DEL', KEYS[i])
end
return number
"""

# KEYS: the lock of the spared lease, then entries and their locks in turn. ARGV: the spared token, since when
# they are stale ("" to remove them). Gives the number of responses.
PURGE_KEYS: Final = (
    _DESCRIPTION
    + r"""
local found = 0
local spared, rest = redis.call('HGET', KEYS[1], ARGV[1]), redis.call('PTTL', KEYS[1])
for i = 2, #KEYS, 2 do
  local entry, lock = KEYS[i], KEYS[i + 1]
  redis.call('DEL', lock)
  local ids = described_in(entry)
  for _, id in ipairs(ids) do drop(entry, id, redis.call('HGET', entry, 'm' .. id), ARGV[2]) end
  found = found + #ids
  if #described_in(entry) == 0 then
    -- Every node hears of it, whatever it holds that Redis does not.
    redis.call('HSET', entry, 'v', '')
    redis.call('DEL', entry)
  end
end
if spared then
  redis.call('HSET', KEYS[1], ARGV[1], spared)
  redis.call('PEXPIRE', KEYS[1], rest)
end
return found
"""
)

# KEYS: entries. ARGV: since when they are stale ("" to remove them), then the tags that are meant; without
# any, all. Gives the number of responses.
DROP: Final = (
    _DESCRIPTION
    + r"""
local found, meant = 0, {}
for i = 2, #ARGV do meant[ARGV[i]] = true end
local function concerned(described)
  if #ARGV < 2 then return true end
  local tags = tags_of(described)
  if not tags then return true end
  for _, tag in ipairs(tags) do
    if meant[tag] then return true end
  end
  return false
end
for _, entry in ipairs(KEYS) do
  local ids = described_in(entry)
  if ARGV[1] == '' and #ARGV < 2 then
    found = found + redis.call('DEL', entry) * #ids
    ids = {}
  end
  for _, id in ipairs(ids) do
    local described = redis.call('HGET', entry, 'm' .. id)
    if concerned(described) then
      drop(entry, id, described, ARGV[1])
      found = found + 1
    end
  end
  if #described_in(entry) == 0 then redis.call('DEL', entry) end
end
return found
"""
)
