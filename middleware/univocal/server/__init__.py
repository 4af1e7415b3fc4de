"""Door two: protocol classes for uvicorn, which answer without an ASGI scope where they can."""
