"""An authority for tests, and certificates of its making."""

import shutil
import ssl
import subprocess
from pathlib import Path

import pytest

_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


class Authority:
    """Issues certificates into `folder`: NAME.pem and NAME.key; its own is ca.pem."""

    def __init__(self, folder: Path) -> None:
        if shutil.which("openssl") is None:
            pytest.skip("needs openssl (Debian package openssl)")
        self.folder = folder
        self._openssl("req", "-x509", *_KEY, "-keyout", "ca.key", "-out", "ca.pem", "-days", "2",
                      "-subj", "/CN=authority", "-addext", "keyUsage=critical,keyCertSign")  # fmt: skip

    def issue(self, name: str, subjects: str, days: int = 2) -> tuple[str, str]:
        """A certificate for `subjects`, such as DNS:a.example,IP:127.0.0.1, and its key: two file names."""
        (self.folder / "extensions").write_text(f"subjectAltName={subjects}\n")
        self._openssl("req", *_KEY, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        self._openssl("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key",
                      "-CAcreateserial", "-days", str(days), "-extfile", "extensions",
                      "-out", f"{name}.pem")  # fmt: skip
        return f"{name}.pem", f"{name}.key"

    def client(self) -> ssl.SSLContext:
        """A context of a client that believes this authority alone."""
        return ssl.create_default_context(cafile=self.folder / "ca.pem")

    def _openssl(self, *arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=self.folder, check=True, capture_output=True)
