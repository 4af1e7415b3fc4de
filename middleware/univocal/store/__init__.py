"""Where responses are kept."""
