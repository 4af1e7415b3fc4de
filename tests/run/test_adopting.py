"""A change during the preparation of a configuration, which takes a while, is in force behind it."""

import shutil

import pytest

from authority import Authority
from examples import cases
from support import NOW, stored_response
from univocal.uri.sites import resolve
from univocal_app.config.tables import validate
from univocal_app.run.assemble import Proxy
from univocal_app.run.reload import changed
from univocal_app.run.restrictions import user_files


@pytest.fixture
async def proxy(tmp_path):
    authority = Authority(tmp_path)
    for name in ("old", "new"):
        authority.issue(name, "DNS:en.example")
    place(tmp_path, "old")
    (tmp_path / "users").write_bytes(b"anna:$2y$05$x\nbob:$2y$05$y\n")
    settings = {
        "server": {"access_log": "off", "tls_cert": "own.pem", "tls_key": "own.key"},
        "sites": [{"hosts": ["en.example"], "upstream": "http://127.0.0.1:1", "access": {"basic": "users"}}],
    }
    made = Proxy(validate(settings, str(tmp_path / "univocal.toml")))
    yield made
    await made.aclose()


def place(folder, name):
    for kind in ("pem", "key"):
        shutil.copy(folder / f"{name}.{kind}", folder / f"own.{kind}")


def known(proxy):
    (users,) = user_files(proxy.cache.gate.runtime)
    return [*users._users]


async def test_a_removed_user_stays_removed(proxy, tmp_path):
    made = proxy.prepared(proxy.configuration)
    (tmp_path / "users").write_bytes(b"anna:$2y$05$x\n")
    proxy.watch_users()
    assert known(proxy) == [b"anna"]
    await proxy.adopt(made)
    assert known(proxy) == [b"anna"]


async def test_a_renewed_certificate_stays_in_force(proxy, tmp_path):
    made = proxy.prepared(proxy.configuration)
    before = proxy.certificates.contents
    place(tmp_path, "new")
    for _ in range(2):
        proxy.certificates.look()
    renewed = proxy.certificates.contents
    assert renewed != before
    await proxy.adopt(made)
    assert proxy.certificates.contents == renewed


@cases("before, after", (["502.html"], ["502.html", "504.html"]), ([], ["502.html"]), (["502.html"], []))
async def test_error_pages_that_come_or_go_are_a_change(proxy, tmp_path, before, after):
    (pages := tmp_path / "pages").mkdir()
    site = {"hosts": ["en.example"], "upstream": "http://127.0.0.1:1", "error_pages": "pages"}
    configuration = proxy.configuration.model_copy(update={"sites": validate({"sites": [site]}, "f").sites})
    for names in (before, after):
        await proxy.adopt(proxy.prepared(configuration))
        shutil.rmtree(pages)
        pages.mkdir()
        for name in names:
            (pages / name).write_text(name)
    made = proxy.prepared(configuration)
    assert changed(proxy, made) == ["sites[0].error_pages"]


async def test_conclusions_from_answers_end_with_a_reload(proxy):
    """A request that failed under the settings before may succeed."""
    engine, stored, none = proxy.cache.engine, stored_response(), frozenset()
    canonical = resolve(b"/a", (b"en.example",), b"https", proxy.cache.gate.runtime.sites)
    engine.gate.failures.note(stored, none, 502, NOW)
    engine.gate.tiers.memory.stop_collapsing(stored.key, NOW + 60, none)
    engine.flights.own_spellings.note(canonical)

    def concluded():
        return (
            engine.gate.failures.of(stored, none, NOW) is not None,
            engine.gate.tiers.memory.is_uncollapsed(stored.key, NOW),
            canonical.key in engine.flights.own_spellings,
        )

    assert concluded() == (True, True, True)
    await proxy.adopt(proxy.prepared(proxy.configuration))
    assert concluded() == (False, False, False)
