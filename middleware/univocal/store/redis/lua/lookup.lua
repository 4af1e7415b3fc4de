#!lua flags=no-cluster,no-writes
-- KEYS: entry. ARGV: octets that are given at once, then the variants that are asked for; without any, all.
-- Gives the last commit's token, then variants, descriptions and contents; of more octets no content, unless
-- it is asked for. What its tags no longer lead to (Redis evicted the index) could not be purged: a miss.

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
