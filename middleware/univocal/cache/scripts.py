"""What Redis does in one step each for who attaches, reads, stores (Lua 5.1; Redis 7.0, Valkey 7.2 or later).

Octets of others come as KEYS and ARGV alone. A lease is a field of its key's lock: its token, with `deadline
id number`. Until the deadline (milliseconds) others wait for it if it is the lock's leader; `id` and `number`
say after which purge of the log it began. Without that log, or in another one, no lease holds; nor does it if
the entry is not the one that these scripts last left there, which the lock's field `entry` says, unless it
merely expired. So what Redis evicts, and what is deleted by hand, makes a commit fail, never succeed.
"""

from __future__ import annotations

from typing import Final

from univocal.cache.lua import ENTRIES, LEASES, script

__all__ = ["ATTACH", "BEGIN", "COMMIT", "DESCRIBED", "LOOKUP", "MOST_OCTETS", "RELEASE", "VERIFY"]

# Descriptions and contents of all responses of one key together: what one reading moves at most.
MOST_OCTETS: Final = 16 << 20

# KEYS: the marker. ARGV: how a namespace of this run begins, a token for a new one, the token of one that is
# refused. Gives the token of the namespace and Redis's time. It writes nothing in a namespace that is there,
# but where it must not write it fails.
ATTACH: Final = r"""#!lua flags=no-cluster,allow-oom
local value, token = redis.pcall('GET', KEYS[1]), nil
if type(value) == 'string' and string.sub(value, 1, #ARGV[1]) == ARGV[1] then
  token = string.match(string.sub(value, #ARGV[1] + 1), '^(%x+):$')
end
if not token or token == ARGV[3] then
  token = ARGV[2]
  redis.call('SET', KEYS[1], ARGV[1] .. token .. ':')
end
local time = redis.call('TIME')
return {token, time[1], time[2]}
"""

# Whether the namespace is still the one that was attached to.
VERIFY: Final = script(",allow-oom", "return 1")

# KEYS: entry. ARGV: variant. Gives its description.
DESCRIBED: Final = script(",no-writes", "return redis.call('HGET', KEYS[1], 'm' .. ARGV[1])")

# KEYS: entry. ARGV: octets that are given at once, then the variants that are asked for; without any, all.
# Gives the last commit's token, then variants, descriptions and contents; of more octets no content, unless
# it is asked for. What its tags no longer lead to (Redis evicted the index) could not be purged: a miss.
LOOKUP: Final = script(
    ",no-writes",
    ENTRIES,
    r"""
local entry, asked, held, octets = KEYS[1], {}, {}, 0
if redis.call('TYPE', entry).ok ~= 'hash' then return {''} end
for i = 2, #ARGV do asked[ARGV[i]] = true end
local function indexed(one)
  for _, tag in ipairs(one.tags) do
    if type(redis.pcall('ZSCORE', root .. 't:' .. tag, key_of(entry))) ~= 'string' then return false end
  end
  return true
end
for variant, one in pairs(responses(entry)) do
  if (#ARGV == 1 or asked[variant]) and indexed(one) then
    held[variant] = one
    octets = octets + #one.text + redis.call('HSTRLEN', entry, 'b' .. variant)
  end
end
local found = {redis.call('HGET', entry, 'v') or ''}
for variant, one in pairs(held) do
  found[#found + 1] = variant
  found[#found + 1] = one.text
  local given = asked[variant] or octets <= tonumber(ARGV[1])
  found[#found + 1] = given and redis.call('HGET', entry, 'b' .. variant)
end
return found
""",
)

# KEYS: lock, log, entry. ARGV: token, milliseconds that others wait, milliseconds a lease lives, whether
# alone, the entry's last commit as it was seen. Gives {1, 0}: begun; {0, n}: another leads for n milliseconds
# more; {2, 0}: the entry has changed.
BEGIN: Final = script(
    "",
    LEASES,
    r"""
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
""",
)

# KEYS: lock, log, entry. ARGV: token, variant, description, content, milliseconds to keep, most variants,
# most octets, origin, tags. Gives 1 if it is stored.
COMMIT: Final = script(
    "",
    ENTRIES,
    LEASES,
    r"""
local lock, log, entry, token, own, now = KEYS[1], KEYS[2], KEYS[3], ARGV[1], ARGV[2], milliseconds()
for _, name in ipairs(KEYS) do sound(name, 'hash') end
local value = redis.call('HGET', lock, token)
if not value then return 0 end
local deadline, id, number = lease(value)
if not number or not holds(log, id, number) then return 0 end
if not undisturbed(lock, entry, now) then return 0 end
local key, new, lost = key_of(entry), {text = ARGV[3], tags = {}}, {tags = {}}
for i = 9, #ARGV do
  for _, field in ipairs(fields(ARGV[8], ARGV[i])) do
    if tonumber(redis.call('HGET', log, field) or 0) > number then return 0 end
  end
  local set = root .. 't:' .. ARGV[i]
  sound(set, 'zset')
  new.tags[#new.tags + 1] = ARGV[i]
  if not redis.call('ZSCORE', set, key) then lost.tags[#lost.tags + 1] = ARGV[i] end
end

local held, gone, rest = responses(entry), {}, {}
local old, this = held[own], read(new.text)
if old and old.whole and not this.whole and old.fresh > this.received then return 0 end
gone[own] = old
for variant, one in pairs(held) do
  -- What a tag did not lead to, no purge of that tag found: it must not come back with the tag.
  local unfound = false
  for _, tag in ipairs(one.tags) do unfound = unfound or has({lost}, tag) end
  if unfound or not one.fresh or one.usable * 1000 < now then
    gone[variant] = one
  elseif variant ~= own then
    one.variant = variant
    rest[#rest + 1] = one
  end
end
-- As many variants as there may be, and octets: the oldest go.
table.sort(rest, function(a, b) return a.received > b.received end)
local kept, count, octets = {[own] = new}, 1, #ARGV[3] + #ARGV[4]
for _, one in ipairs(rest) do
  count, octets = count + 1, octets + #one.text + redis.call('HSTRLEN', entry, 'b' .. one.variant)
  if count > tonumber(ARGV[6]) or octets > tonumber(ARGV[7]) then
    gone[one.variant] = one
  else
    kept[one.variant] = one
  end
end
forget(entry, gone, kept)

redis.call('HSET', entry, 'v', token, 'm' .. own, ARGV[3], 'b' .. own, ARGV[4])
redis.call('HSETNX', entry, 'g', token)
local keep = tonumber(ARGV[5])
if redis.call('PTTL', entry) < keep then redis.call('PEXPIRE', entry, keep) end
for _, tag in ipairs(new.tags) do
  local set = root .. 't:' .. tag
  -- A few of those that expired, or were evicted, go with each that comes: the set stays in proportion.
  local dead = redis.call('ZRANGE', set, '-inf', now, 'BYSCORE', 'LIMIT', 0, 100)
  for _, member in ipairs(redis.call('ZRANDMEMBER', set, 3)) do
    if redis.call('EXISTS', root .. 'e:' .. member) == 0 then dead[#dead + 1] = member end
  end
  if #dead > 0 then redis.call('ZREM', set, unpack(dead)) end
  redis.call('ZADD', set, 'GT', now + keep, key)
  if redis.call('PTTL', set) < keep then redis.call('PEXPIRE', set, keep) end
end
redis.call('HSET', lock, 'entry', left(entry, now))
ended(lock, token)
return 1
""",
)

# KEYS: lock. ARGV: token. Who waits for this lease is told.
RELEASE: Final = script(
    ",allow-oom",
    LEASES,
    r"""
sound(KEYS[1], 'hash')
if ended(KEYS[1], ARGV[1]) then tell(root .. 'x:w' .. key_of(KEYS[1])) end
return 1
""",
)
