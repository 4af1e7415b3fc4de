"""The way to the origin server."""
