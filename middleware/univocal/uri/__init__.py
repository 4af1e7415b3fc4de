"""The one spelling: a received target in, the canonical one or the reasons against it out. Pure."""
