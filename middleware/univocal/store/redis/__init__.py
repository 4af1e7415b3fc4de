"""The tier that several nodes share, in Redis or Valkey."""
