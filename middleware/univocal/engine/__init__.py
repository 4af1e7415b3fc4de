"""One request's way."""
