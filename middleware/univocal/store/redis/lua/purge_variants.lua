#!lua flags=no-cluster,allow-oom
-- KEYS: an entry. ARGV: since when they are stale ("" to remove them), the latest time at which those came that
-- are meant, then their variants. Gives the number of responses. Leases of the key stay good: what comes for
-- them is newer.

local entry, latest, asked = KEYS[1], tonumber(ARGV[2]), {}
for i = 3, #ARGV do asked[ARGV[i]] = true end
local function concerned(one, variant)
  return not one.fresh or (asked[variant] and one.received <= latest)
end
local found = purge(entry, ARGV[1], concerned)
-- Every node hears of it, whatever it holds that Redis does not.
if found == 0 then tell(entry) end
return found
