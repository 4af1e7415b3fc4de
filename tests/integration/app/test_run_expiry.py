"""When certificates expire, as the page shows it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from univocal_app.config.tables import validate
from univocal_app.run.certificate_files import expiries, expiry_of

# As OpenSSL writes them: UTCTime until 2049, GeneralizedTime from 2050 on.
TIMES = [("20300102030405Z", 1893553445), ("20510102030405Z", 2556241445)]


def certificate(directory: Path, name: str, end: str) -> str:
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    command += ["-subj", "/CN=en.example", "-keyout", f"{name}.key", "-out", f"{name}.csr", "-days", "1"]
    subprocess.run(command, cwd=directory, check=True, capture_output=True)
    (directory / "serial").write_text("01")
    (directory / "index").write_text("")
    (directory / "ca.cnf").write_text(
        "[ca]\ndefault_ca = own\n[own]\ndatabase = index\nserial = serial\nnew_certs_dir = .\n"
        "default_md = sha256\npolicy = any\n[any]\ncommonName = supplied\n"
    )
    command = ["openssl", "ca", "-batch", "-config", "ca.cnf", "-selfsign", "-ss_cert", f"{name}.csr"]
    command += ["-keyfile", f"{name}.key", "-cert", f"{name}.csr", "-enddate", end, "-out", f"{name}.pem"]
    subprocess.run(command, cwd=directory, check=True, capture_output=True)
    return f"{name}.pem"


@pytest.mark.parametrize(("end", "seconds"), TIMES)
def test_a_certificate_says_when_it_expires(tmp_path: Path, end: str, seconds: int) -> None:
    pem = (tmp_path / certificate(tmp_path, "own", end)).read_text()
    assert expiry_of(pem) == seconds


def test_each_certificate_of_the_listener_is_told(tmp_path: Path) -> None:
    name = certificate(tmp_path, "own", TIMES[0][0])
    site = {"upstream": "http://127.0.0.1:1"}
    settings = {
        "server": {"tls_cert": name, "tls_key": "own.key"},
        "sites": [
            {"hosts": ["a.example"], "tls_cert": "gone.pem", **site},
            {"hosts": ["b.example"], **site},
        ],
    }
    source = str(tmp_path / "univocal.toml")
    assert expiries(validate(settings, source), source) == [
        {"site": "", "expires": TIMES[0][1]},
        {"site": "a.example", "expires": None},
    ]


@pytest.mark.parametrize("pem", ["", "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----"])
def test_a_file_without_a_certificate_is_an_error(pem: str) -> None:
    with pytest.raises(ValueError, match="certificate"):
        expiry_of(pem)
