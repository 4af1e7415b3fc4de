"""HTTP/2 towards clients (RFC 9113): bytes become frames, frames events, and each stream a `Turn`.

From the socket up:

- `frames` cuts bytes into frames and counts their cost.
- `session` keeps the states of streams and the windows, and says what each frame means.
- `fields` decodes, judges and encodes sections of fields.
- `connection` has the methods that asyncio calls, the writing and the timeouts, and each stream's exchange.

Only this package imports hpack.
"""
