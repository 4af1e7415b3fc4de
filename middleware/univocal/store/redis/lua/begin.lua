#!lua flags=allow-oom
-- KEYS: turn. ARGV: token, milliseconds of a turn. Gives what `take` does.

return {take(KEYS[1], ARGV[1], ARGV[2])}
