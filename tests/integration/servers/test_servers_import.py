"""The nginx that runs here beside its imported configuration: the same routes, the same request lines."""

import re
import tomllib
from pathlib import Path
from urllib.parse import unquote_to_bytes

import pytest

from examples import LONG
from univocal.uri.profile import parse
from univocal.uri.sites import resolve
from univocal.uri.target import Canonical, origin_target
from univocal_app.config.site_reader import SiteReader
from univocal_app.config.tables import validate
from univocal_learn.importers.imported import Source, profile_text, sites_text
from univocal_learn.importers.nginx import read

CONFIGURATION = (Path(__file__).parent / "nginx.conf").read_text("utf-8")


@pytest.fixture(scope="module")
def imported():
    """The server that proxies; its origin is at a port instead of a socket."""
    text = CONFIGURATION.replace("server unix:PREFIX/origin.sock;", "server 127.0.0.1:9000;")
    text = text.replace("unix:PREFIX/", "unix:/run/")
    listening = [number for number, line in enumerate(text.splitlines(), 1) if "proxying.sock" in line]
    return read(Source("nginx.conf", text, f"line {listening[0] - 1}"))


@pytest.fixture(scope="module")
def sites(imported, built_in):
    profile = parse({"mine": profile_text(imported, "nginx.conf", "mine")}, built_in)["mine"]
    tables = validate(tomllib.loads(sites_text(imported, "mine", "profiles")), "univocal.toml").sites
    return SiteReader("univocal.toml", {"mine": profile}).read(tables)


def test_every_location_is_a_route_or_said(imported):
    (site,) = imported.sites
    routes = {route["path"]: route for route in site["routes"]}
    said = " ".join(note.text for note in imported.notes)
    for path in re.findall(r"location (\S+) \{", CONFIGURATION.partition("proxying.sock")[2]):
        assert path in routes or f"location {path}: no proxy_pass" in said
    assert routes["/foo"]["upstream"] == "http://127.0.0.1:9000/bar"
    assert routes["/as-received/"]["forward"] == "received"
    assert routes["/by-variable/"]["upstream"] == "http://127.0.0.1:9000/x{path}"
    assert site["origin_host"] == "origin"


@pytest.mark.parametrize("prefix", [b"/foo", b"/shop/", b"/as-received/", b"/by-variable/"])
def test_the_origin_gets_what_nginx_sends_it(nginx, generated, sites, prefix):
    """Of what both take for this route's; variables of nginx write decoded octets, and no query."""
    sent = {}
    for target in generated(1, 10_000 if LONG else 4000):
        received = prefix.rstrip(b"/") + target
        found = resolve(received, [b"origin.example"], b"http", sites)
        if isinstance(found, Canonical) and found.route.prefix == prefix:
            sent[received if found.route.forward == "received" else found.target] = origin_target(found)
    answers = nginx.proxying.ask(sent)
    assert len(sent) > 1000
    for asked, target in sent.items():
        assert answers[asked].body == b"GET %b HTTP/1.1" % as_nginx_writes(target, prefix), asked


def as_nginx_writes(target, prefix):
    """A target of ours as nginx writes it on a request line."""
    if prefix == b"/by-variable/":
        return unquote_to_bytes(target.partition(b"?")[0])
    if prefix == b"/as-received/":
        return target
    return re.sub(rb"^([^?]*)\?$", rb"\1", target)  # no "?" of an empty query
