"""Door one, ASGI: the middleware, and the application that forwards."""
