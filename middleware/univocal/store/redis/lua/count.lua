#!lua flags=no-cluster,no-writes
-- KEYS: entries. ARGV: a tag that is meant, then tags of which none is; without any, all. Gives the number of
-- responses that `DROP` and `PURGE_KEYS` would.

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
