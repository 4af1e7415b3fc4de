"""The name by which users give uvicorn the protocol class: `--http univocal.protocol:ExactProtocol`."""
