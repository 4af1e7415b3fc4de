"""The name by which users give uvicorn the protocol class: `--http univocal.protocol:ExactProtocol`."""

from univocal.server.protocol import ExactProtocol

__all__ = ["ExactProtocol"]
