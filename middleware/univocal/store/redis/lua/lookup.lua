#!lua flags=allow-oom
-- KEYS: entry, lock. ARGV: octets that are given at once, the token of who would take the lock ("" for nobody),
-- milliseconds of a lock, then the variants that are asked for; without any, all.
-- Gives what `take` does (-1 if nobody would take the lock, or something is there), then variants, descriptions and contents; of
-- more octets no content, unless it is asked for.

local held, wanted, sum, found = responses(KEYS[1]), {}, 0, {-1, ''}
if next(held) == nil then
  if ARGV[2] ~= '' then found = {take(KEYS[2], ARGV[2], ARGV[3])} end
  return found
end
for i = 4, #ARGV do wanted[ARGV[i]] = true end
for variant, one in pairs(held) do sum = sum + #one.text + one.octets end
local given, places = {}, {}
for variant, one in pairs(held) do
  if #ARGV == 3 or wanted[variant] then
    found[#found + 1] = variant
    found[#found + 1] = one.text
    found[#found + 1] = false
    if wanted[variant] or sum <= tonumber(ARGV[1]) then
      given[#given + 1] = 'b' .. variant
      places[#places + 1] = #found
    end
  end
end
if #given > 0 then
  for i, content in ipairs(redis.call('HMGET', KEYS[1], unpack(given))) do found[places[i]] = content end
end
return found
