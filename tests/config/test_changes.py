"""The dotted keys by which two configurations differ."""

from examples import cases
from univocal_app.config.tables import validate
from univocal_app.run.reload import FIXED, _fixed, changes, value_at

SITE = {"hosts": ["en.example"], "upstream": "http://127.0.0.1:1"}
OTHER = {"hosts": ["de.example"], "upstream": "http://127.0.0.1:2"}
ROUTE = {"path": "/api/"}


def read(**tables):
    return validate({"sites": [SITE], **tables}, "test")


@cases(
    "before, after, keys",
    ({}, {}, []),
    ({}, {"server": {"workers": 1, "max_body": "0 B"}, "purge": {}}, []),
    ({}, {"profiles": ["own"]}, ["profiles"]),
    ({}, {"server": {"listen": "[::1]:8080", "drain": 5}}, ["server.listen", "server.drain"]),
    ({}, {"purge": {"allow": ["192.0.2.7"]}}, ["purge.allow"]),
    ({}, {"cache": {"max_bytes": "1 MiB", "ttl": 5}}, ["cache.ttl", "cache.max_bytes"]),
    ({}, {"cache": {"ttl": 0}, "origin": {"read_timeout": 60}}, []),
    ({}, {"origin": {"read_timeout": 5}}, ["origin.read_timeout"]),
    ({}, {"sites": [OTHER]}, ["sites[0].hosts", "sites[0].upstream"]),
    ({}, {"sites": [SITE, OTHER]}, ["sites[1]"]),
    ({"sites": [SITE, OTHER]}, {}, ["sites[1]"]),
    ({}, {"sites": [{**SITE, "routes": [ROUTE]}]}, ["sites[0].routes[0]"]),
    (
        {"sites": [{**SITE, "routes": [ROUTE]}]},
        {"sites": [{**SITE, "routes": [{**ROUTE, "profile": "upload"}]}]},
        ["sites[0].routes[0].profile"],
    ),
    ({}, {"sites": [{**SITE, "scheme": "keep"}]}, []),
    # It goes before what is said for all sites, though it is the default.
    ({}, {"sites": [{**SITE, "cache": {"ttl": 0}}]}, ["sites[0].cache.ttl"]),
    ({}, {"sites": [{**SITE, "origin": {"read_timeout": 60}}]}, ["sites[0].origin.read_timeout"]),
    ({"sites": [{**SITE, "cache": {"ttl": 0}}]}, {"sites": [{**SITE, "cache": {"ttl": 0}}]}, []),
)
def test_the_settings_that_differ_are_named(before, after, keys):
    assert changes(read(**before), read(**after)) == keys


@cases(
    "cache, server, keys",
    ({}, {"workers": 2}, ["cache.max_bytes"]),
    ({}, {}, []),
    ({"store": "file:///tmp/x"}, {"workers": 2}, []),
)
def test_memory_of_several_workers_keeps_its_size(cache, server, keys):
    """It is a directory of that size, as `disk_bytes` are those of a directory on a disk."""
    before, after = (
        read(server=server, cache=cache),
        read(server=server, cache={**cache, "max_bytes": 1 << 26}),
    )
    assert [error.key for error in _fixed(before, after)] == keys


def test_settings_that_need_a_restart_exist():
    configuration = read(server={"listen": "127.0.0.1:1"})
    assert {key: str(value_at(configuration, key)) for key in FIXED} == {
        "server.listen": "(Address(host='127.0.0.1', port=1),)",
        "server.admin": "(Address(host='127.0.0.1', port=8081),)",
        "server.listen_tls": "()",
        "server.proxy_protocol": "False",
        "server.http2": "False",
        "server.workers": "1",
        "server.otel": "False",
        "cache.store": "memory",
        "cache.disk_bytes": "1073741824",
        "cache.redis.timeout": "1",
        "cache.redis.connections": "32",
        "cache.redis.heartbeat": "0.5",
    }
