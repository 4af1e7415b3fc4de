"""`univocal profiles import` from the outside: where things are written, what is said, and no traceback."""

import tomllib
from dataclasses import astuple

import pytest

from examples import cases
from inside import commands
from univocal.judge.profiles import builtin_profiles, read_profiles

RING = "size_t ring[256] = {" + ",".join(map(str, builtin_profiles()["mediawiki"].ring.forms)) + "};"
WHOLE = ["profiles", "import", "--from", "nginx", "nginx.conf", "--output", "profiles/mine.toml"]
WHOLE += ["--sites", "univocal.toml"]
SERVER = "server { server_name en.example; listen 80;\nlocation / { proxy_pass http://127.0.0.1:9001; }\n}\n"


@pytest.fixture
def univocal(monkeypatch, capsys, tmp_path):
    run = commands(monkeypatch, capsys)
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: astuple(run(*arguments))


@pytest.fixture
def files(tmp_path):
    (tmp_path / "profiles").mkdir()
    (tmp_path / "ring.vcl").write_text(RING)
    (tmp_path / "nginx.conf").write_text(SERVER)
    return tmp_path


def test_a_profile_goes_to_standard_output_or_a_file(univocal, files):
    status, out, err = univocal("profiles", "import", "--from", "varnish", "ring.vcl")
    assert status == 0
    assert out.startswith("# Imported from ring.vcl.\n")
    assert err == (
        "ring.vcl: dot segments, slashes, parameters and fragments are as in the profile rfc3986: "
        "the array is of bytes\n"
    )
    (files / "profiles" / "first.toml").write_text(out)
    result = univocal(
        "profiles", "import", "ring.vcl", "--from", "varnish", "--output", "profiles/second.toml"
    )
    assert (result[0], result[1]) == (0, "")
    known = read_profiles([files / "profiles"], builtin_profiles())
    assert known["first"].digest == known["second"].digest
    assert repr(known["first"].ring) == repr(known["mediawiki"].ring)
    assert known["second"].summary == "Imported from a Varnish decoder ring: ring"


def test_each_pair_of_sets_has_a_profile_of_its_own(univocal, files):
    script = "@plugin=tslua.so @pparam=normalize-path.lua"
    rules = (
        f'map http://{host} http://127.0.0.1:1 {script} @pparam="2F" @pparam="{encoded}"'
        for host, encoded in (("a.example", "5B"), ("b.example", "5D"), ("c.example", "5B"))
    )
    (files / "remap.config").write_text("\n".join(rules))
    arguments = ("profiles", "import", "--from", "ats", "remap.config")
    status, _, err = univocal(*arguments)
    assert (status, "2 profiles" in err, "--output" in err) == (2, True, True)
    assert univocal(*arguments, "--output", "profiles/x.toml", "--sites", "univocal.toml")[0] == 0
    assert sorted(file.name for file in (files / "profiles").iterdir()) == ["x-2.toml", "x.toml"]
    sites = tomllib.loads((files / "univocal.toml").read_text())["sites"]
    assert [site["profile"] for site in sites] == ["x", "x-2", "x"]
    assert univocal("check", "--config", "univocal.toml")[0] == 0


def test_sites_are_a_configuration_that_univocal_takes(univocal, files):
    status, out, err = univocal(*WHOLE)
    assert (status, out) == (0, "")
    assert err == ""
    assert 'listen = "0.0.0.0:80"\n' in (files / "univocal.toml").read_text()
    assert univocal("check", "--config", "univocal.toml")[:2] == (0, "univocal.toml: valid, 1 site\n")
    explained = univocal("explain", "--config", "univocal.toml", "http://en.example/a%2fb")
    assert explained[0] == 0
    assert "profile mine" in explained[1]
    commented = (files / "profiles" / "mine.toml").read_text().partition("# For univocal.toml:\n")[2]
    sites = (files / "univocal.toml").read_text().partition("\n\n")[2]
    assert [
        line.removeprefix("# ").removeprefix("#") for line in commented.splitlines()
    ] == sites.splitlines()


def test_a_name_that_is_not_the_file_s_is_said(univocal, files):
    _, _, err = univocal(
        "profiles", "import", "--from", "varnish", "ring.vcl", "--name", "a", "--output", "profiles/b.toml"
    )
    assert "profiles/b.toml: a profile is called as its file, 'b'; its sites say 'a'" in err


@cases(
    "arguments, said",
    (["nowhere.vcl"], "univocal: nowhere.vcl: found 'No such file or directory'; allowed: a readable file"),
    (["."], "univocal: .: found 'Is a directory'; allowed: a readable file"),
    (["large"], "univocal: large: found 'more than 1048576 bytes'; allowed: the part that is imported"),
    (["/dev/zero"], "found 'more than 1048576 bytes'"),
    (["ring.vcl", "--output", "no/where.toml"], "univocal: no/where.toml: found 'No such file or directory'"),
    (["ring.vcl", "--sites", "univocal.toml"], "univocal: univocal.toml: found 'no site'"),
    (
        ["ring.vcl", "--pick", "other"],
        "univocal: ring.vcl: found 'no array other'; allowed: --pick with one of: ring",
    ),
)
def test_invalid_arguments_end_with_a_message_and_status_2(univocal, files, arguments, said):
    (files / "large").write_bytes(b"{" * (2**20 + 1))
    status, out, err = univocal("profiles", "import", "--from", "varnish", *arguments)
    assert (status, out) == (2, "")
    assert said in err
    assert "Traceback" not in err


def test_status_1_if_an_access_rule_has_no_equal(univocal, files):
    (files / "nginx.conf").write_text(SERVER.replace("proxy_pass", "auth_request /check; proxy_pass"))
    status, _, err = univocal(*WHOLE)
    assert status == 1
    assert "nginx.conf: access rules without an equal: 1; see the lines above" in err
    assert univocal("check", "--config", "univocal.toml")[:2] == (
        0,
        "univocal.toml: valid, 1 site; closed: 1 site, 0 routes\n",
    )
    assert '{ deny = ["0.0.0.0/0", "::/0"] }' in (files / "univocal.toml").read_text()


@cases(
    "directive, pages",
    ("error_page 502 504 /50x.html;", {"502.html": "sorry", "504.html": "sorry"}),
    ("error_page 404 /own/a.html; location /own/ { alias FILES/; }", {"404.html": "sorry"}),
    ("error_page 404 = @app;", {}),
    ("error_page 404 =200 /50x.html;", {}),
    ("error_page 404 /none.html; error_page 403 /nginx.conf;", {}),
)
def test_pages_of_errors_are_copied_beside_the_sites(univocal, files, directive, pages):
    for name in ("50x.html", "a.html"):
        (files / name).write_text("sorry")
    text = directive.replace("FILES", str(files))
    text = SERVER.replace("location /", f"root {files}; {text} location /", 1)
    (files / "nginx.conf").write_text(text)
    assert "error_pages =" not in univocal(*WHOLE[:5])[1]
    assert ("see [server] error_pages" in univocal(*WHOLE)[2]) is not bool(pages)
    found = {file.name: file.read_text() for file in files.glob("error_pages/*")}
    assert found == pages
    assert ("error_pages =" in (files / "univocal.toml").read_text()) is bool(pages)
    assert univocal("check", "--config", "univocal.toml")[0] == 0


def test_sites_do_not_stand_among_profiles(univocal, files):
    arguments = ("--from", "nginx", "nginx.conf", "--output", "mine.toml", "--sites", "univocal.toml")
    status, _, err = univocal("profiles", "import", *arguments)
    assert status == 2
    assert "another directory than the profile's" in err
    assert not (files / "mine.toml").exists()


@cases("arguments", [], ["ring.vcl"], ["--from", "apache", "ring.vcl"], ["--from", "varnish"])
def test_usage(univocal, files, arguments):
    status, _, err = univocal("profiles", "import", *arguments)
    assert status == 2
    assert "univocal profiles import [OPTIONS]" in err


def test_no_byte_of_the_file_is_obeyed_by_a_terminal(univocal, files):
    (files / "evil.conf").write_bytes(
        b"server { location / { proxy_pass http://a; } set x\x1b[31m\x07\xff\x7f '\n'; }"
    )
    status, out, err = univocal("profiles", "import", "--from", "nginx", "evil.conf")
    assert status == 0
    assert "x\\x1b[31m\\x07" in err
    assert all(letter.isprintable() or letter == "\n" for letter in out + err)
    (files / "profiles" / "evil.toml").write_text(out)
    assert "evil" in read_profiles([files / "profiles"], builtin_profiles())


def test_listing_and_showing_go_on_beside_it(univocal, files):
    assert "mediawiki" in univocal("profiles")[1]
    assert univocal("profiles", "mediawiki") == univocal("profiles", "show", "mediawiki")
    (files / "profiles" / "import.toml").write_text('summary = "called as a command is"\n')
    (files / "univocal.toml").write_text(
        'profiles = ["profiles"]\n[[sites]]\nhosts = ["*"]\nupstream = "http://127.0.0.1:1"\n'
    )
    assert "called as a command is" in univocal("profiles", "show", "import", "--config", "univocal.toml")[1]
    assert "called as a command is" in univocal("profiles", "--config", "univocal.toml")[1]


@cases(
    "source, text, said",
    ("nginx", "", "no directive"),
    ("nginx", "include nowhere.conf;", "includes alone: nowhere.conf"),
    ("nginx", "server { server_name a.example; return 403; }", ""),
)
def test_status_3_if_nothing_could_be_imported(univocal, files, source, text, said):
    (files / "empty").write_text(text)
    arguments = ("--from", source, "empty", "--output", "profiles/a.toml", "--sites", "univocal.toml")
    status, out, err = univocal("profiles", "import", *arguments)
    assert status == (3 if said else 0)
    assert said in err
    assert out == ""


def test_a_guarded_path_in_latin_1_stays_guarded(univocal, files):
    guarded = SERVER.replace(
        "location /", "add_header X-A Andr\udce9; location /caf\udce9/ { deny all; } location /"
    )
    (files / "nginx.conf").write_bytes(guarded.encode("utf-8", "surrogateescape"))
    assert univocal(*WHOLE)[0] == 0
    assert univocal("check", "--config", "univocal.toml")[0] == 0
    assert 'path = "/caf%E9/"' in (files / "univocal.toml").read_text()


@pytest.mark.parametrize("refusal", ["deny all;", "return 403;", "return 444;", "internal;"])
def test_status_0_if_every_refusal_is_written(univocal, files, refusal):
    (files / "nginx.conf").write_text(
        SERVER.replace("location /", f"location /a/ {{ {refusal} }} location /")
    )
    assert univocal(*WHOLE)[0] == 0
    assert univocal("check", "--config", "univocal.toml")[0] == 0
