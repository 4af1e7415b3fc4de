"""HTTP/2 towards clients (RFC 9113): octets become frames, frames events, and each stream a `Turn`.

From the socket up: `frames` cuts octets into frames and counts what they cost, `session` lets h2 read them,
`head` judges a request's fields, `stream` is one exchange, `connection` is what asyncio calls. `block` writes
the fields of responses. Only this package imports h2, hpack and hyperframe.
"""
