"""The demo: the proxy before four small origins, and what to try with curl."""

from univocal_app.demo.run import demo

__all__ = ["demo"]
