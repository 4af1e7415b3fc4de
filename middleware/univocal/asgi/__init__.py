"""Door one: ASGI."""
