"""univocal.toml, the files that it includes, variables in its strings, and the lines of its settings."""

import os
from pathlib import Path

import pytest

from examples import cases
from univocal.http.errors import ConfigurationError
from univocal_app.config.files import Files, parsed, substituted
from univocal_app.config.tables import validate
from univocal_app.run.configured import runtime_of
from univocal_app.run.reading import read

SITE = '[[sites]]\nhosts = ["{0}"]\nupstream = "http://127.0.0.1:9"\n'


def write(folder, **texts):
    """Write files; returns univocal.toml, which is `main`."""
    for name, text in texts.items():
        file = folder / ("univocal.toml" if name == "main" else f"sites/{name}.toml")
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    return folder / "univocal.toml"


def mistakes(file):
    with pytest.raises(ConfigurationError) as refused:
        read(file)
    return [str(each).removeprefix(f"{file.parent}/") for each in (refused.value, *refused.value.beside)]


def test_included_sites_follow_in_order_of_their_names(tmp_path):
    file = write(
        tmp_path,
        main='include = ["sites/*.toml", "sites/b.toml"]\n' + SITE.format("main.example"),
        b=SITE.format("b.example"),
        a=SITE.format("a.example") + SITE.format("aa.example"),
    )
    hosts = [site.hosts[0] for site in read(file).sites]
    assert hosts == ["main.example", "a.example", "aa.example", "b.example"]


def test_a_file_with_sites_from_included_files_alone(tmp_path):
    file = write(tmp_path, main='include = ["sites/*.toml"]', a=SITE.format("a.example"))
    assert [site.hosts for site in read(file).sites] == [["a.example"]]


@pytest.mark.parametrize("pattern", ["none/*.toml", "*.toml"])
def test_a_pattern_may_match_nothing_else(tmp_path, pattern):
    file = write(tmp_path, main=f'include = ["{pattern}"]\n' + SITE.format("a.example"))
    assert len(read(file).sites) == 1


def test_a_mistake_names_the_included_file_and_its_line(tmp_path):
    file = write(
        tmp_path,
        main='include = ["sites/*.toml"]\n' + SITE.format("main.example"),
        a=SITE.format("a.example") + SITE.format("aa.example") + 'profile = "nope"\n',
        b=SITE.format("b.example") + "lisen = 3\n",
    )
    profile, unknown = mistakes(file)
    assert profile.startswith("sites/a.toml:7: sites[1].profile: there is no profile 'nope'")
    assert unknown.startswith("sites/b.toml:4: sites[0].lisen: unknown key.")


@cases(
    "main, included, mistake",
    ('include = ["sites/none.toml"]\n', "", "univocal.toml:1: include[0]: found 'sites/none.toml'"),
    ('include = "sites/a.toml"\n', "", "univocal.toml:1: include: found 'sites/a.toml'"),
    ('include = ["sites/a.toml"]\n', "[server]\n", "sites/a.toml:1: server: an included file holds"),
    ('include = ["sites/a.toml"]\n', "include = []\n", "sites/a.toml:1: include: an included file"),
    ('include = ["sites/a.toml"]\n', "[sites]\n", "sites/a.toml:1: sites: `[sites]` is one table"),
    ('include = ["sites/a.toml"]\n', "a = 1 2\n", "sites/a.toml:1:7: invalid TOML: expected a newline"),
)
def test_an_invalid_include_is_refused_with_its_line(tmp_path, main, included, mistake):
    file = write(tmp_path, main=main + SITE.format("a.example"), a=included)
    (said,) = mistakes(file)
    assert said.startswith(mistake)


def test_a_string_names_variables_of_the_environment(tmp_path):
    file = write(
        tmp_path,
        main='[[sites]]\nhosts = ["${NAME}.example"]\nupstream = "http://${HOST}:${PORT}/$${NAME}$"\n',
    )
    environ = {"NAME": "en", "HOST": "10.0.0.1", "PORT": "90", "SPARE": "${NAME}"}
    (site,) = Files.read(file, environ).settings["sites"]
    assert site == {"hosts": ["en.example"], "upstream": "http://10.0.0.1:90/${NAME}$"}


def test_a_variable_s_value_is_not_read_again(tmp_path):
    file = write(tmp_path, main='a = "${A}"')
    assert Files.read(file, {"A": "${B} $${C}"}).settings == {"a": "${B} $${C}"}


def test_every_variable_that_is_not_set_is_told(tmp_path):
    text = '[server]\nlisten = "${NOWHERE_A}"\n[[sites]]\nhosts = ["a", "${NOWHERE_B}"]\nupstream = "${1}"\n'
    file = write(tmp_path, main=text)
    first, second, third = mistakes(file)
    assert first.startswith("univocal.toml:2: server.listen: the environment has no variable `NOWHERE_A`")
    assert second.startswith("univocal.toml:4: sites[0].hosts[1]: the environment has no variable")
    assert third.startswith("univocal.toml:5: sites[0].upstream: '${1}' names no variable")


@cases(
    "text, seconds",
    ('"500ms"', 0.5),
    ('"15s"', 15),
    ('"5m"', 300),
    ('"2h"', 7200),
    ('"1d"', 86400),
    ("2.5", 2.5),
    ("7", 7),
)
def test_a_duration_may_have_a_unit(tmp_path, text, seconds):
    file = write(
        tmp_path,
        main=f"server = {{ shutdown_timeout = {text}, header_timeout = {text} }}\n"
        f"origin = {{ read_timeout = {text}, eject = {text} }}\n" + SITE.format("a.example"),
    )
    configuration = validate(parsed(file), str(file))
    server, origin = configuration.server, configuration.origin
    assert (server.shutdown_timeout, server.header_timeout) == (seconds, seconds)
    assert (origin.read_timeout, origin.eject) == (seconds, seconds)


@pytest.mark.parametrize("text", ["5 minutes", "-1s", "1h30m", "", "s", "1_0s"])
def test_a_text_that_is_no_duration_is_refused(tmp_path, text):
    file = write(tmp_path, main=f'[origin]\nread_timeout = "{text}"\n' + SITE.format("a.example"))
    (said,) = mistakes(file)
    assert said.startswith(f"univocal.toml:2: origin.read_timeout: found {text!r}; allowed: a number of")


def test_lifetimes_of_the_cache_may_have_units(tmp_path):

    text = (
        SITE.format("a.example") + '[sites.cache]\nttl = "5m"\ngrace = "1h"\nttl_by_status = {404 = "10s"}\n'
    )
    file = write(tmp_path, main=text)
    rules = runtime_of(read(file)).settings["a.example"].rules
    assert (rules.ttl, rules.grace, rules.ttl_by_status) == (300, 3600, {404: 10})


@cases(
    "text, mistake",
    ("[server]\nlisen = 'x'\n", "2: server.lisen: unknown key. Did you mean `listen`?"),
    ("[server]\nmax_bytes = 1\n", "`max_bytes` is a key of `[cache]`."),
    ("listen = 'x'\n", "1: listen: unknown key. `listen` is a key of `[server]`."),
    ("lisen = 'x'\n", "1: lisen: unknown key. Did you mean `listen` of `[server]`?"),
    ("[serve]\n", "1: serve: unknown key. Did you mean `server`?"),
    ("[sites]\nhosts = ['a']\n", "1: sites: `[sites]` is one table"),
    ("[sites]\nhosts = ['a']\n", "write `[[sites]]`"),
    ("[[server]]\n", "1: server: there is one such table: write `[server]`, not `[[server]]`"),
    ("[purge]\nallow = '::1'\n", "found '::1'; allowed: an array: write `[\"::1\"]`"),
    ("[purge]\nwhatever = 1\n", "2: purge.whatever: unknown key. The keys are allow, token_env"),
)
def test_a_mistake_says_what_was_probably_meant(tmp_path, text, mistake):
    sites = "" if "[sites]" in text else SITE.format("a.example")
    (said,) = mistakes(write(tmp_path, main=text + sites))
    assert mistake in said


def test_a_route_s_star_is_the_route_s_mistake(tmp_path):
    route = '[[sites.routes]]\npath = "/a/"\nupstream = "http://127.0.0.1/{1}/"\n'
    (said,) = mistakes(write(tmp_path, main=SITE.format("a.example") + route))
    assert said.startswith("univocal.toml:6: sites[0].routes[0].upstream: found '/{1}/'")


@pytest.mark.parametrize(("text", "status"), [('"301"', 301), ("308", 308), ('"serve"', 0)])
def test_a_redirection_s_status_may_be_a_text(tmp_path, text, status):

    file = write(
        tmp_path, main=SITE.format("a.example") + f"alias_answer = {text}\naliases = ['b.example']\n"
    )
    (site,) = runtime_of(read(file)).sites.sites
    assert site.alias_answer == status


@cases(
    "text, said",
    ('[server]\nlisten = "${SECRET}:x"', "found '${SECRET}:x'"),
    ('include = ["a/*.toml", "${SECRET}.toml"]', "include[1]: found '${SECRET}.toml'"),
    ('[server]\nlisten = ["127.0.0.1:80", "${SECRET}:x"]', "'${SECRET}:x'"),
    ('[cache]\nstore = "http://${SECRET}"', "found 'http://${SECRET}'"),
    ('[request]\nset = { "X-Key" = "a${SECRET}\\u0007" }', "request.set.X-Key: found '"),
    ('[request]\nset = { "X-Key" = "hunter2\\u0007" }', "found '***'"),
    ('[[sites]]\nhosts = ["b.example"]\nupstream = "ftp://${SECRET}/"', "found 'ftp://${SECRET}/'"),
    (
        '[[sites]]\nhosts = ["b.example"]\nupstream = "http://127.0.0.1/${SECRET}/{x}"',
        "found 'http://127.0.0.1/${SECRET}/{x}'",
    ),
    ('[[sites]]\nhosts = ["b.example"]\nupstream = "http://127.0.0.1"\nprofile = "${SECRET}"', "'${SECRET}'"),
)
def test_a_mistake_shows_variables_by_their_names(tmp_path, monkeypatch, text, said):
    monkeypatch.setenv("SECRET", "hunter2")
    top, _, site = text.partition("[[sites]]")
    file = write(tmp_path, main=f"{top}\n{SITE.format('a.example')}" + (f"[[sites]]{site}" if site else ""))
    (told,) = mistakes(file)
    assert said in told
    assert "hunter2" not in told


def test_an_included_files_mistake_shows_variables_by_their_names(tmp_path, monkeypatch):
    monkeypatch.setenv("SECRET", "hunter2")
    own = '[[sites]]\nhosts = ["b.example"]\nupstream = "ftp://${SECRET}/"\n'
    file = write(tmp_path, main='include = ["sites/*.toml"]\n' + SITE.format("a.example"), own=own)
    (told,) = mistakes(file)
    assert told.startswith("sites/own.toml:3: sites[0].upstream: found 'ftp://${SECRET}/'; allowed: ")


def test_an_unreadable_file_is_said_as_that(tmp_path, monkeypatch):
    def refused(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_text", refused)
    file = tmp_path / "univocal.toml"
    assert mistakes(file) == [
        f"univocal.toml: the file cannot be read by user {os.geteuid()}: Permission denied"
    ]


@pytest.mark.parametrize("key", ["sites[7].hosts", "server.a.b.c", "server.listen.more"])
def test_a_key_that_leads_nowhere_harms_nothing_else(key):
    settings = {"server": {"listen": "x"}, "sites": [{"hosts": ["a"]}], "cache": {"ttl": 5}}
    assert substituted(settings, [key])["cache"] == {"ttl": 5}
