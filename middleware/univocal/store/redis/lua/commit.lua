#!lua flags=no-cluster
-- KEYS: lock, log, entry. ARGV: token, variant, description, content, milliseconds to keep, most variants,
-- most octets, origin, tags. Gives 1 if it is stored.

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
