#!lua flags=allow-oom
-- KEYS: lock. ARGV: token, milliseconds of a lock. Gives what `take` does.

return {take(KEYS[1], ARGV[1], ARGV[2])}
