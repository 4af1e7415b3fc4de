#!lua flags=no-cluster,allow-oom
-- KEYS: lock. ARGV: token. Who waits for this lease is told.

sound(KEYS[1], 'hash')
if ended(KEYS[1], ARGV[1]) then tell(root .. 'x:w' .. key_of(KEYS[1])) end
return 1
