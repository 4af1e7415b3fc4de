"""Profiles from what other programs know of an application's URLs: Varnish, Traffic Server, nginx."""
