"""The line of a setting, by its dotted key, and settings without those that cannot be."""

import pytest

from univocal_app.config.files import line_of, substituted

FILE = """\
profiles = [
  "a",
]
# a comment
[server]
listen = "x"
tls = {cert = "a", key = "b"}

[[sites]]
hosts = ["a.example"]
origin.health.path = "/h"
[[sites.routes]]
path = "/x/"
[[sites]]
hosts = ["b.example"]
[[sites.routes]]
path = "/y/"
[[sites.routes]]
path = "/z/"
"""


@pytest.mark.parametrize(
    ("key", "line"),
    [
        ("profiles", 1),
        ("profiles[0]", 1),
        ("server", 5),
        ("server.listen", 6),
        ("server.tls.key", 7),
        ("server.unknown", 5),
        ("sites[0].hosts", 10),
        ("sites[0].origin.health.path", 11),
        ("sites[0].routes[0].path", 13),
        ("sites[1]", 14),
        ("sites[1].hosts[0]", 15),
        ("sites[1].routes[0].path", 17),
        ("sites[1].routes[1].path", 19),
        ("sites[1].upstream", 14),
        ("sites[2]", 0),
        ("unknown", 0),
    ],
)
def test_a_key_leads_to_its_line_or_table(key, line):
    assert line_of(FILE, key) == line


def test_an_invalid_setting_is_left_out_of_a_copy():
    settings = {"server": {"listen": "x", "workers": 0}}
    assert substituted(settings, ["server.workers"]) == {"server": {"listen": "x"}}
    assert settings == {"server": {"listen": "x", "workers": 0}}


def test_what_others_need_is_replaced_each_by_its_own():
    settings = {"sites": [{"hosts": [], "upstream": "x"}, {"hosts": "a", "upstream": "y"}]}
    first, second = substituted(settings, ["sites[0].hosts", "sites[1].hosts", "sites[1].upstream"])["sites"]
    assert first["hosts"] != second["hosts"]
    assert (first["upstream"], second["upstream"]) == ("x", "http://127.0.0.1")


@pytest.mark.parametrize("key", ["sites[7].hosts", "server.a.b.c", "server.listen.more"])
def test_a_key_that_leads_nowhere_harms_nothing_else(key):
    settings = {"server": {"listen": "x"}, "sites": [{"hosts": ["a"]}], "cache": {"ttl": 5}}
    assert substituted(settings, [key])["cache"] == {"ttl": 5}
