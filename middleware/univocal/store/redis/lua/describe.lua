#!lua flags=no-writes
-- KEYS: entry. Gives variants and descriptions.

local found = {}
for variant, one in pairs(responses(KEYS[1])) do
  found[#found + 1] = variant
  found[#found + 1] = one.text
end
return found
