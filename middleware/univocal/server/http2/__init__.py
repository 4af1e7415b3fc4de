"""HTTP/2 towards clients (RFC 9113): bytes become frames, frames events, and each stream a `Turn`.

From the socket up:

- `frames` cuts bytes into frames and counts their cost.
- `session` keeps the states of streams and the windows, and says what each frame means.
- `section` decodes a request's fields, `head` judges them.
- `stream` is one exchange.
- `block` has the fields of responses.
- `output` and `pace` are the connection's writing and its timeouts.
- `connection` has the methods that asyncio calls.

Only this package imports hpack.
"""
