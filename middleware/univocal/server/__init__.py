"""Door two: uvicorn's protocol class."""
