"""Traffic Server with Wikimedia's sets of octets: it sends its origin the paths that the profiles have."""

import socket
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.ports import free_port
from tests.traffic_server import with_rules
from univocal.uri.profile import parse
from univocal.uri.target import Rejected, canonical_target
from univocal_learn.importers.ats import read
from univocal_learn.importers.imported import Source, profile_text

ORIGINS = Path(__file__).parent / "origins"

# The octets that Wikimedia's remap rules decode and encode, by the profile that has them.
SETS = {
    "mediawiki": ("3A 2F 40 21 24 28 29 2A 2C 3B", "5B 5D 26 27 2B 3D"),
    "restbase": ("3A 40 21 24 28 29 2A 2C 3B", "5B 5D 26 27 2B 3D"),
    "upload": ("2F", "21 24 26 27 28 29 2A 2B 2C 3A 3B 3D 40 5B 5D"),
}


@pytest.fixture(scope="module", params=list(SETS))
def traffic_server(request, new_directory, client_at, serving, echo):
    """A running Traffic Server with one remap rule: the rule, and a client."""
    base, port = new_directory(), free_port()
    decoded, encoded = SETS[request.param]
    rule = (
        f"map http://origin.example http://127.0.0.1:{echo} @plugin=tslua.so "
        f'@pparam={ORIGINS}/normalize-path.lua @pparam="{decoded}" @pparam="{encoded}"\n'
    )
    client = client_at(socket.AF_INET, ("127.0.0.1", port))
    with serving(with_rules(base, port, rule), client, base / "log"):
        yield SimpleNamespace(name=request.param, rule=rule, client=client)


@pytest.fixture
def profile(traffic_server, built_in):
    """The profile that is imported from the rule; Traffic Server leaves dot segments and queries alone."""
    imported = read(Source("remap.config", traffic_server.rule, None))
    text = profile_text(imported, "remap.config", "mine")
    mine = parse({"mine": text}, built_in)["mine"]
    assert mine.ring.forms == built_in[traffic_server.name].ring.forms
    settings = 'extends = "mine"\n[path]\ndot_segments = "keep"\n[query]\ndrop_empty_mark = false\n'
    return parse({"plain": settings}, {**built_in, "mine": mine})["plain"]


def test_traffic_server_sends_the_path_that_the_profile_has(traffic_server, profile, generated):
    """Traffic Server drops slashes at the beginning, and ";" and "?" with nothing after them."""
    targets = [
        target
        for target in generated(1, 3000)
        if target.isascii() and not target.startswith(b"//") and not target.split(b"?")[0].endswith(b";")
    ]
    answers = traffic_server.client.ask(targets)
    paths = {}
    for received in targets:
        canonical = canonical_target(received, profile)
        if isinstance(canonical, Rejected) or canonical.startswith(b"//"):
            continue
        assert answers[received].status == 200, received
        sent = answers[received].body.split(b" ")[1]
        path = canonical.split(b"?")[0]
        assert sent.split(b"?")[0] == path, (received, canonical)
        if canonical != path + b"?":
            assert canonical_target(sent, profile) == canonical, (received, sent)
        paths[path] = paths.get(path, 0) + 1
    assert len(paths) > 500
    assert sum(paths.values()) > 1.3 * len(paths)


def test_traffic_server_drops_slashes_at_the_beginning(traffic_server):
    assert traffic_server.client.one(b"//a").body.startswith(b"GET /a ")
