"""The name by which users give uvicorn the protocol class: `--http univocal.protocol:ExactProtocol`."""

from univocal.server.asgi_service import ExactProtocol

__all__ = ["ExactProtocol"]
