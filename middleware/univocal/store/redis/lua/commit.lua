-- KEYS: entry, lock. ARGV: token of the lock ("" without one), variant, description, content, milliseconds to keep,
-- most variants, most octets, seconds now, milliseconds of a lock.
-- Gives 0: not stored, for a whole response is better; 1: stored; 2: in place of one that was fresh.

local entry, own, now = KEYS[1], ARGV[2], tonumber(ARGV[8])
local held, odd = responses(entry)
if odd then redis.call('DEL', entry) end
local this, old, outcome = described(ARGV[3]), held[own], 1
if old and old.whole and not this.whole and old.fresh > this.received then return 0 end
if old and old.fresh > now then outcome = 2 end
if next(held) ~= nil then
  local rest, gone = {}, {}
  for variant, one in pairs(held) do
    if variant ~= own then
      one.variant = variant
      rest[#rest + 1] = one
    end
  end
  -- As many variants as there may be, and octets: the oldest go, and what has expired.
  table.sort(rest, function(a, b) return a.received > b.received end)
  local count, octets = 1, #ARGV[3] + #ARGV[4]
  for _, one in ipairs(rest) do
    count, octets = count + 1, octets + #one.text + one.octets
    if count > tonumber(ARGV[6]) or octets > tonumber(ARGV[7]) or one.usable < now then
      gone[#gone + 1] = 'm' .. one.variant
      gone[#gone + 1] = 'b' .. one.variant
    end
  end
  for first = 1, #gone, 100 do redis.call('HDEL', entry, unpack(gone, first, math.min(first + 99, #gone))) end
end
redis.call('HSET', entry, 'm' .. own, ARGV[3], 'b' .. own, ARGV[4])
if next(held) == nil or redis.call('PTTL', entry) < tonumber(ARGV[5]) then
  redis.call('PEXPIRE', entry, ARGV[5])
end
if ARGV[1] ~= '' then
  local lock = redis.pcall('GETDEL', KEYS[2])
  -- Somebody else has it by now, for it ran out.
  if type(lock) == 'string' and lock ~= ARGV[1] then redis.call('SET', KEYS[2], lock, 'PX', ARGV[9]) end
end
return outcome
