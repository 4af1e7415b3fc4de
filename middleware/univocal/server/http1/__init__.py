"""HTTP/1.1 towards clients (RFC 9112): the reader of requests, the framing of responses, the connection."""
