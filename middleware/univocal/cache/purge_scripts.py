"""What Redis does in one step each for who purges; also where memory is full and nothing is evicted."""

from __future__ import annotations

from typing import Final

from univocal.cache.lua import ENTRIES, LEASES, script

__all__ = ["DROP", "NOTE", "PURGE_KEYS"]

# KEYS: log, the lock of the spared lease, the notices to give. ARGV: a new id, the spared token, whether
# every lease ends, the origin (empty: any), tags. Done first, so that nothing fetched before is stored after.
# The spared lease outlives this purge: it is that of the response which caused it.
NOTE: Final = script(
    ",allow-oom",
    LEASES,
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
PURGE_KEYS: Final = script(
    ",allow-oom",
    ENTRIES,
    LEASES,
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
DROP: Final = script(
    ",allow-oom",
    ENTRIES,
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
