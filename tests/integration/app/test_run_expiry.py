"""The expiry of certificates, as the page shows it, and of those that replace them."""

import shutil
import subprocess
from dataclasses import replace

import pytest

from authority import Authority
from examples import cases
from univocal.http.errors import ConfigurationError
from univocal.uri.site import Site
from univocal.uri.sites import Sites
from univocal_app.config.tables import validate
from univocal_app.run.certificate_files import CertificateFiles, contexts_of, expiries, expiry_of

# The two forms of OpenSSL: UTCTime until 2049, GeneralizedTime from 2050 on.
TIMES = [("20300102030405Z", 1893553445), ("20510102030405Z", 2556241445)]


def certificate(directory, name, end):
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
def test_a_certificate_says_when_it_expires(tmp_path, end, seconds):
    pem = (tmp_path / certificate(tmp_path, "own", end)).read_text()
    assert expiry_of(pem) == seconds


def test_each_certificate_of_the_listener_is_told(tmp_path):
    name = certificate(tmp_path, "own", TIMES[0][0])
    site = {"upstream": "http://127.0.0.1:1"}
    settings = {
        "server": {"tls_cert": name, "tls_key": "own.key"},
        "sites": [{"hosts": ["a.example"], "tls_cert": "gone.pem", **site}, {"hosts": ["b.example"], **site}],
    }
    source = str(tmp_path / "univocal.toml")
    assert expiries(validate(settings, source)) == [
        {"site": "", "expires": TIMES[0][1]},
        {"site": "a.example", "expires": None},
    ]


@pytest.mark.parametrize("pem", ["", "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----"])
def test_a_file_without_a_certificate_is_an_error(pem):
    with pytest.raises(ValueError, match="certificate"):
        expiry_of(pem)


# The certificates in force: of the server, a.example and b.example.
HOSTS = ("a.example", "b.example")


class Files:
    """Files of certificates, made anew or expired, and the configurations that name them."""

    def __init__(self, folder):
        self.folder, self.source = folder, str(folder / "univocal.toml")
        self.authority = Authority(folder)
        self.authority.issue("good", "DNS:a.example")
        self.authority.issue("old", "DNS:a.example", days=-1)

    def put(self, **kinds):
        for name, kind in kinds.items():
            for ending in ("pem", "key"):
                shutil.copy(self.folder / f"{kind}.{ending}", self.folder / f"{name}.{ending}")

    def configuration(self, *named):
        sites = [{"hosts": [host], "upstream": "http://127.0.0.1:1"} for host in HOSTS]
        for host, site in zip(HOSTS, sites, strict=True):
            if host[0] in named:
                site |= {"tls_cert": f"{host[0]}.pem", "tls_key": f"{host[0]}.key"}
        settings = {"server": {"tls_cert": "server.pem", "tls_key": "server.key"}, "sites": sites}
        return validate(settings, self.source)

    def contexts(self, configuration):
        contexts = contexts_of(configuration)
        assert contexts is not None
        return contexts

    def in_force(self, *named):
        configuration = self.configuration(*named)
        sites = Sites([Site.of(host, "rfc3986") for host in HOSTS])
        return CertificateFiles(configuration, sites, self.contexts(configuration))


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return Files(tmp_path_factory.mktemp("certificates"))


@pytest.mark.parametrize("expired", ["server", "a", "b"])
def test_one_expired_file_keeps_no_other_renewal_out(files, expired, caplog):
    files.put(server="good", a="good", b="good")
    certificates = files.in_force("a", "b")
    before = shown(certificates)
    files.put(**{"server": "good", "a": "good", "b": "good", expired: "old"})
    for _ in range(3):
        certificates.look()
    after = shown(certificates)
    assert {name for name in after if after[name] is before[name]} == {expired}
    place = {"server": "server", "a": "sites[0]", "b": "sites[1]"}[expired]
    assert f"unusable, the old ones stay in use: {files.source}: {place}.tls_cert: the" in caplog.text
    files.put(**{expired: "good"})
    for _ in range(2):
        certificates.look()
    assert shown(certificates)[expired] is not before[expired]


def shown(certificates):
    current = certificates.current()
    return {"server": current.default, "a": current.of(b"a.example"), "b": current.of(b"b.example")}


@cases(
    "kinds, named, then, key",
    ("old good good", "ab", "a", "sites[1].tls_cert"),
    ("old good good", "ab", "", "sites[0].tls_cert"),
    ("old old good", "a", "", ""),
    ("good old good", "", "a", "sites[0].tls_cert"),
    ("good old good", "a", "a", ""),
    ("old good good", "a", "a", ""),
    ("good old good", "a", "", ""),
)
def test_no_reload_shows_an_expired_certificate_for_a_valid_one(files, kinds, named, then, key):
    files.put(**dict(zip(("server", "a", "b"), kinds.split(), strict=True)))
    certificates, wanted = files.in_force(*named), files.configuration(*then)
    if not key:
        certificates.refuse_expired(wanted, files.contexts(wanted))
        return
    with pytest.raises(ConfigurationError, match="has expired") as caught:
        certificates.refuse_expired(wanted, files.contexts(wanted))
    assert caught.value.key == key


def test_a_file_changed_during_a_reload_is_read_again(files):
    files.put(server="good")
    configuration = files.configuration()
    prepared = files.contexts(configuration)
    files.put(server="good")  # between the two halves of a reload
    sites = Sites([Site.of(host, "rfc3986") for host in HOSTS])
    certificates = CertificateFiles(configuration, sites, prepared)
    for _ in range(2):
        certificates.look()
    assert certificates.current().default is not prepared.of("").context


class Overtaken(dict):
    """Certificates by site; while one is sought, the watch finds changed files and puts them into force."""

    def __init__(self, by_site, watch):
        super().__init__(by_site)
        self.watch = watch

    def get(self, site):
        for _ in range(2):
            self.watch.look()
        return super().get(site)


def test_a_file_found_changed_meanwhile_breaks_no_reload(files):
    files.put(server="good", a="good")
    certificates, wanted = files.in_force("a"), files.configuration("a")
    files.put(a="old")
    expired = files.contexts(wanted)
    files.put(server="good")
    overtaken = replace(expired, by_site=Overtaken(expired.by_site, certificates))
    with pytest.raises(ConfigurationError, match="has expired"):
        certificates.refuse_expired(wanted, overtaken)
