#!lua flags=allow-oom
-- KEYS: entry. Removes it; gives the descriptions that were there.

local found = {}
for _, one in pairs(responses(KEYS[1])) do found[#found + 1] = one.text end
redis.call('UNLINK', KEYS[1])
return found
