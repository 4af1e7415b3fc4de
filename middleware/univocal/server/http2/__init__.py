"""HTTP/2 towards clients (RFC 9113): bytes become frames, frames events, and each stream a `Turn`.

From the socket up:

- `frames` cuts bytes into frames and counts their cost.
- `session` lets h2 read them, and `brief` keeps streams that need no h2.
- `section` decodes a request's fields, `head` judges them.
- `stream` is one exchange.
- `block` has the fields of responses.
- `output` and `pace` are the connection's writing and its timeouts.
- `connection` has the methods that asyncio calls.

Only this package imports h2, hpack and hyperframe.
"""
