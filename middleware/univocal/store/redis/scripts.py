"""Scripts, each of which Redis runs in one step, in Lua 5.1 (Redis 7.0, Valkey 7.2 or later).

Octets of others come as KEYS and ARGV alone. A lease is a field of its key's lock: its token, with `deadline
id number`. Until the deadline (milliseconds) others wait for it if it is the lock's leader; `id` and `number`
say after which purge of the log it began. Without that log, or in another one, no lease holds; nor does it if
the entry is not the one that these scripts last left there, which the lock's field `entry` says, unless it
merely expired. So what Redis evicts, and what is deleted by hand, makes a commit fail, never succeed.
"""

from __future__ import annotations

from typing import Final

__all__ = [
    "ATTACH",
    "BEGIN",
    "COMMIT",
    "COUNT",
    "DESCRIBED",
    "DROP",
    "LOOKUP",
    "MOST_OCTETS",
    "MOVED",
    "NOTE",
    "PURGE_KEYS",
    "RELEASE",
    "VERIFY",
]

# What the scripts have in common: the namespace they work in, how an entry is read.

# How the error begins of a script that was called for another namespace than the one the marker names.
MOVED: Final = "NAMESPACE"

_NAMESPACE: Final = (
    r"""
if redis.pcall('GET', KEYS[1]) ~= ARGV[1] then
  return redis.error_reply('"""
    + MOVED
    + r""" is another one than this node attached to')
end
local root = table.remove(ARGV, 1)
table.remove(KEYS, 1)

-- What stands behind a name's kind: a cache key.
local function key_of(name) return string.sub(name, #root + 3) end

-- What is of another kind than it has to be is of no use, and in the way.
local function sound(name, kind)
  local found = redis.call('TYPE', name).ok
  if found ~= kind and found ~= 'none' then redis.call('DEL', name) end
end

-- Every node hears of a notice.
local function tell(notice)
  redis.call('SET', notice, 1)
  redis.call('DEL', notice)
end
"""
)


def _script(flags: str, *parts: str) -> str:
    """A script of Redis 7.0 or later; its first key is the marker, its first argument the namespace."""
    return "\n".join([f"#!lua flags=no-cluster{flags}", _NAMESPACE, *parts])


_ENTRIES: Final = r"""
local function finite(text)
  local value = string.match(text, '^%-?%d[%de.+-]*$') and tonumber(text)
  return value and value - value == 0 and value or nil
end

-- What a description says; if it cannot be read, it has no `fresh` and no tags.
local function read(text)
  local unreadable = {text = text, tags = {}}
  local line, stop = string.match(text, '^([^\n]*)()\n')
  if not line then return unreadable end
  local whole, fresh, received, usable, count =
    string.match(line, '^%d+ ([wp]) (%S+) (%S+) (%S+) (%d%d?%d?%d?)$')
  if not whole then return unreadable end
  local one = {text = text, line = line, whole = whole == 'w', tags = {}}
  one.fresh, one.received, one.usable = finite(fresh), finite(received), finite(usable)
  if not (one.fresh and one.received and one.usable) then return unreadable end
  local position = stop + 1
  for i = 1, tonumber(count) do
    local length, start = string.match(text, '^(%d+):()', position)
    if not length then return unreadable end
    position = start + tonumber(length)
    one.tags[i] = string.sub(text, start, position - 1)
  end
  return one
end

-- The responses of an entry by their variants. Its fields: descriptions m…, contents b…, the token of the
-- last commit v, that of the commit which created it g.
local function responses(entry)
  sound(entry, 'hash')
  local found = {}
  for _, field in ipairs(redis.call('HKEYS', entry)) do
    if string.sub(field, 1, 1) == 'm' then
      found[string.sub(field, 2)] = read(redis.call('HGET', entry, field))
    end
  end
  return found
end

local function has(held, tag)
  for _, one in pairs(held) do
    for _, its in ipairs(one.tags) do
      if its == tag then return true end
    end
  end
  return false
end

-- Remove responses of an entry, and its key from the tags that nothing kept has.
local function forget(entry, gone, kept)
  for variant, one in pairs(gone) do
    redis.call('HDEL', entry, 'm' .. variant, 'b' .. variant)
    for _, tag in ipairs(one.tags) do
      if not has(kept, tag) then redis.pcall('ZREM', root .. 't:' .. tag, key_of(entry)) end
    end
  end
end

-- Remove of an entry what is concerned, or mark it stale as of `soft`: the number of responses, and what is
-- left. A change that the tracking tells to every node; the leases of the key know of it.
local function purge(entry, soft, concerned)
  local gone, kept, found = {}, {}, 0
  for variant, one in pairs(responses(entry)) do
    if not concerned(one) then
      kept[variant] = one
    elseif soft ~= '' and one.fresh then
      kept[variant], found = one, found + 1
      local text = one.text
      if one.fresh > tonumber(soft) then
        local before, after = string.match(one.line, '^(%d+ [wp] )%S+( .*)$')
        text = before .. soft .. after .. string.sub(text, #one.line + 1)
      end
      redis.call('HSET', entry, 'm' .. variant, text)
    else
      gone[variant], found = one, found + 1
    end
  end
  forget(entry, gone, kept)
  if next(kept) == nil then
    redis.call('DEL', entry)
    local lock = root .. 'l:' .. key_of(entry)
    sound(lock, 'hash')
    if redis.call('EXISTS', lock) == 1 then redis.call('HSET', lock, 'entry', '') end
  end
  return found, kept
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
"""

# Attaching, reading, storing.

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
VERIFY: Final = _script(",allow-oom", "return 1")

# KEYS: entry. ARGV: variant. Gives its description.
DESCRIBED: Final = _script(",no-writes", "return redis.call('HGET', KEYS[1], 'm' .. ARGV[1])")

# KEYS: entry. ARGV: octets that are given at once, then the variants that are asked for; without any, all.
# Gives the last commit's token, then variants, descriptions and contents; of more octets no content, unless
# it is asked for. What its tags no longer lead to (Redis evicted the index) could not be purged: a miss.
LOOKUP: Final = _script(
    ",no-writes",
    _ENTRIES,
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
BEGIN: Final = _script(
    "",
    _LEASES,
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
COMMIT: Final = _script(
    "",
    _ENTRIES,
    _LEASES,
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
RELEASE: Final = _script(
    ",allow-oom",
    _LEASES,
    r"""
sound(KEYS[1], 'hash')
if ended(KEYS[1], ARGV[1]) then tell(root .. 'x:w' .. key_of(KEYS[1])) end
return 1
""",
)

# Purging: also where memory is full and nothing is evicted.

# KEYS: log, the lock of the spared lease, the notices to give. ARGV: a new id, the spared token, whether
# every lease ends, the origin (empty: any), tags. Done first, so that nothing fetched before is stored after.
# The spared lease outlives this purge: it is that of the response which caused it.
NOTE: Final = _script(
    ",allow-oom",
    _LEASES,
    r"""
local log, lock = KEYS[1], KEYS[2]
sound(log, 'hash')
sound(lock, 'hash')
-- A log that has grown too long begins anew: no live lease outlives that.
if redis.call('HLEN', log) > 10000 then redis.call('DEL', log) end
if not redis.call('HGET', log, 'id') then
  redis.call('HSET', log, 'id', ARGV[1], 'number', 0, 'floor', 0)
  redis.call('PEXPIRE', log, 600000)
end
local number = redis.call('HINCRBY', log, 'number', 1)
if ARGV[3] == '1' then redis.call('HSET', log, 'floor', number) end
for i = 5, #ARGV do
  redis.call('HSET', log, fields(ARGV[4], ARGV[i])[2], number)
  sound(root .. 't:' .. ARGV[i], 'zset')
end
local spared = redis.call('HGET', lock, ARGV[2])
if spared then
  local deadline, id = lease(spared)
  redis.call('HSET', lock, ARGV[2], string.format('%d %s %s', deadline, id, number))
end
for i = 3, #KEYS do tell(KEYS[i]) end
return number
""",
)

# KEYS: the lock of the spared lease, then entries. ARGV: the spared token, since when they are stale ("" to
# remove them). Gives the number of responses.
PURGE_KEYS: Final = _script(
    ",allow-oom",
    _ENTRIES,
    _LEASES,
    r"""
local mine, found, soft = KEYS[1], 0, ARGV[2]
sound(mine, 'hash')
local spared, rest = redis.call('HGET', mine, ARGV[1]), redis.call('PTTL', mine)
for i = 2, #KEYS do
  local entry = KEYS[i]
  redis.call('DEL', root .. 'l:' .. key_of(entry))
  local meant = purge(entry, soft, function() return true end)
  found = found + meant
  -- Every node hears of it, whatever it holds that Redis does not.
  if soft ~= '' then
    tell(root .. 'x:ks' .. key_of(entry))
  elseif meant == 0 then
    tell(entry)
  end
end
if spared then
  local entry = root .. 'e:' .. key_of(mine)
  redis.call('HSET', mine, ARGV[1], spared, 'entry', left(entry, milliseconds()))
  redis.call('PEXPIRE', mine, rest)
end
return found
""",
)

# KEYS: entries. ARGV: since when they are stale ("" to remove them), then the tags that are meant; without
# any, all. Gives the number of responses. The sets of these tags forget what none of them leads to.
DROP: Final = _script(
    ",allow-oom",
    _ENTRIES,
    r"""
local found, wanted = 0, {}
for i = 2, #ARGV do wanted[i - 1] = ARGV[i] end
local function concerned(one)
  if #wanted == 0 or not one.fresh then return true end
  for _, tag in ipairs(wanted) do
    if has({one}, tag) then return true end
  end
  return false
end
for _, entry in ipairs(KEYS) do
  local meant, kept = purge(entry, ARGV[1], concerned)
  found = found + meant
  for _, tag in ipairs(wanted) do
    if not has(kept, tag) then redis.call('ZREM', root .. 't:' .. tag, key_of(entry)) end
  end
end
return found
""",
)

# KEYS: entries. ARGV: a tag that is meant, then tags of which none is; without any, all. Gives the number of
# responses that `DROP` and `PURGE_KEYS` would.
COUNT: Final = _script(
    ",no-writes",
    _ENTRIES,
    r"""
local found = 0
local function concerned(one)
  if #ARGV == 0 or not one.fresh then return true end
  for i = 2, #ARGV do
    if has({one}, ARGV[i]) then return false end
  end
  return has({one}, ARGV[1])
end
for _, entry in ipairs(KEYS) do
  if redis.call('TYPE', entry).ok == 'hash' then
    for _, one in pairs(responses(entry)) do
      if concerned(one) then found = found + 1 end
    end
  end
end
return found
""",
)
