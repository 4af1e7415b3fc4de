#!lua flags=no-cluster,allow-oom
-- KEYS: entries. ARGV: since when they are stale ("" to remove them), then the tags that are meant; without
-- any, all. Gives the number of responses. The sets of these tags forget what none of them leads to.

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
