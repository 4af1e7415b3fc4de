"""Remap rules with two sets of octets, from remap.config, YAML and a comment."""

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import cases
from univocal.http.errors import ConfigurationError
from univocal.judge.profiles import builtin_profiles
from univocal.uri.percent_encoding import DECODE, ENCODE
from univocal.uri.profile import parse
from univocal_learn.importers.ats import read
from univocal_learn.importers.imported import Source, other_profiles, profile_text, sites_text
from univocal_learn.importers.site_writer import CLOSED

BUILT_IN = builtin_profiles()
WIKI = '@pparam="3A 2F 40 21 24 28 29 2A 2C 3B" @pparam="5B 5D 26 27 2B 3D"'
SCRIPT = "@plugin=tslua.so @pparam=/etc/trafficserver/lua/normalize-path.lua"
SETS = f"{SCRIPT} {WIKI}"
RULE = f"map http://en.example http://127.0.0.1:9001 {SCRIPT} "

YAML = """\
mapping_rules:
    - type: map
      target: http://upload.example
      replacement: https://swift.example   # TLS
      params:
          - '@plugin=/usr/lib/trafficserver/modules/tslua.so'
          - '@pparam=/etc/trafficserver/lua/normalize-path.lua'
          # decode    /
          - '@pparam="2F"'
          # encode    !  $  &  '  (  )  *  +  ,  :  ;  =  @  [  ]
          - '@pparam="21 24 26 27 28 29 2A 2B 2C 3A 3B 3D 40 5B 5D"'
          - '@plugin=/usr/lib/trafficserver/modules/tslua.so'
          - '@pparam=/etc/trafficserver/lua/another.lua'
    - type: map
      target: http://misc.example
      replacement: https://misc.internal.example:30443
    - type: regex_map
      target: 'http://(.*)/api/rest_v1'
      replacement: https://rest.internal.example:7443/api/rest_v1
      params:
          - '@plugin=/usr/lib/trafficserver/modules/tslua.so'
          - '@pparam=/etc/trafficserver/lua/normalize-path.lua'
          - '@pparam="3A 40 21 24 28 29 2A 2C 3B 27"'
          - '@pparam="5B 5D 26 2B 3D"'
"""


def imported(text, pick=None):
    return read(Source("remap.config", text, pick))


def profile(result):
    return parse({"mine": profile_text(result, "remap.config", "mine")}, BUILT_IN)["mine"]


def said(result):
    return [(note.line, note.text) for note in result.notes if note.line]


@cases(
    "text",
    RULE + WIKI,
    f"map http://en.example http://127.0.0.1:9001 \\\n    {SCRIPT} \\\n    {WIKI}\n",
    f"-- Usage:\n-- map / https://apps.example {SCRIPT} \\\n--     {WIKI}\n\njit.off(true, true)\n",
    WIKI,
    WIKI.replace('"', "'").lower(),
    "# a rule\n\n" + RULE + WIKI.replace(" @", "\t@") + "  # with a comment",
)
def test_the_sets_of_mediawiki_are_the_built_in_profile(text):
    plain = "[path]\nmerge_slashes = false\n[query]\ndrop_empty_mark = false\n"
    with_mark = parse({"x": f'extends = "mediawiki"\n{plain}'}, BUILT_IN)["x"]
    assert profile(imported(text)).digest == with_mark.digest


def test_the_sets_of_upload_in_yaml():
    result = imported(YAML, "http://upload.example")
    assert profile(result).digest == BUILT_IN["upload"].digest
    # Beside the sets it has a script that may refuse.
    assert result.sites == [
        {"hosts": ["upload.example"], "upstream": "https://swift.example", "origin_host": "upstream"}
        | {"access": CLOSED}
    ]
    assert [(line, text) for line, text in said(result) if "without these sets" in text] == [
        (14, "map http://misc.example: without these sets; left out, and its plugins"),
        (17, "regex_map http://(.*)/api/rest_v1: without these sets; left out, and its plugins"),
    ]
    (another,) = (each for each in said(result) if "another.lua" in each[1])
    assert another[0] == 12


def test_rules_with_different_sets_are_picked_from():
    with pytest.raises(ConfigurationError, match=r"no rule nope.*--pick with one of: http://upload"):
        imported(YAML, "nope")
    result = imported(YAML, "line 17")
    assert (result.path["decode"], result.path["encode"]) == ("! $ ' ( ) * , : ; @", "& + = [ ]")
    site, *others = result.sites
    assert site["hosts"] == ["*"]
    assert [each["hosts"] for each in others] == [["upload.example"], ["misc.example"]]
    assert all(each["access"] == CLOSED for each in others)
    assert site["routes"] == [
        {"path": "/api/rest_v1", "upstream": "https://rest.internal.example:7443/api/rest_v1"}
    ]


def test_rules_with_other_sets_have_profiles_of_their_own():
    other = '@pparam="2F" @pparam="5B"'
    rules = [("/w/", "9002", WIKI), ("/x/", "9003", other), ("/y/", "9004", ""), ("", "9001", other)]
    text = "\n".join(
        f"map http://en.example{path} http://127.0.0.1:{port}{path} {SCRIPT if sets else ''} {sets}"
        for path, port, sets in rules
    )
    result = imported(f"map http://de.example http://127.0.0.1:9005 {SETS}\n{text}")
    de, en = result.sites
    assert "profile" not in de
    assert en["profile"] == "-2"
    routes = {route["path"]: route.get("profile") for route in en["routes"]}
    assert routes == {"/w/": "", "/x/": None, "/y/": None}
    assert profile(result).ring.forms[0x3A] == DECODE
    ((name, own),) = other_profiles(result, "remap.config", "mine")
    assert name == "mine-2"
    second = parse({name: own}, BUILT_IN)[name]
    assert (second.ring.forms[0x2F], second.ring.forms[0x5B]) == (DECODE, ENCODE)
    tables = tomllib.loads(sites_text(result, "mine", "profiles"))["sites"]
    assert [site["profile"] for site in tables] == ["mine", "mine-2"]
    assert tables[1]["routes"][0]["profile"] == "mine"


def test_rules_of_one_host_become_routes_of_its_site():
    text = "\n".join(
        f"map {target} {to} {SETS}"
        for target, to in [
            ("http://en.example/api/", "http://127.0.0.1:9002/v1/"),
            ("http://de.example:8080", "http://127.0.0.1:9003"),
            ("ws://en.example", "ws://127.0.0.1:9001"),
            ("http://en.example/x", "http://127.0.0.1:9002/y/"),
            ("http://en.example/", "http://127.0.0.1:9001"),
            ("http://bad host/", "http://127.0.0.1:9002"),
        ]
    )
    result = imported(text.replace("@plugin", "@action=allow @plugin", 1).replace("bad host", "bad_host%"))
    assert result.sites == [
        {
            "hosts": ["en.example"],
            "upstream": "http://127.0.0.1:9001",
            "origin_host": "upstream",
            "routes": [
                {"path": "/api/", "upstream": "http://127.0.0.1:9002/v1/"},
                {"path": "/x", "upstream": "http://127.0.0.1:9002/y/"},
            ],
        },
        {"hosts": ["de.example:8080"], "upstream": "http://127.0.0.1:9003", "origin_host": "upstream"},
    ]
    expected = [
        (1, "@action=allow"),
        (3, "map ws://en.example: only `map`"),
        (4, "/x and http://127.0.0.1:9002/y/ do not both end"),
        (4, "/x is a prefix of bytes there"),
        (6, "the host 'bad_host%' is left out"),
        (6, "no site is written"),
    ]
    assert [line for line, _ in said(result)] == [line for line, _ in expected]
    assert all(text.startswith(begins) for (_, text), (_, begins) in zip(said(result), expected, strict=True))


def test_a_host_without_a_root_rule_answers_502_there():
    result = imported(f"map http://a.example/api http://127.0.0.1:1/api {SETS}")
    assert result.sites[0]["upstream"] == "http://127.0.0.1:9"
    assert any("nothing is mapped at /" in text for _, text in said(result))


@cases(
    "decode, encode, octet, form, text",
    ("25", "", 0x25, ENCODE, "'%': decoded there, encoded here"),
    ("20 2F", "", 0x20, ENCODE, "0x20: decoded there, encoded here"),
    ("2F", "2D", 0x2D, DECODE, "'-': encoded there, decoded here"),
    ("", "2F", 0x2F, DECODE, "'/': encoded there, decoded here"),
    ("3B", "3B", 0x3B, ENCODE, "3B is in both sets: encoded, since the script encodes last"),
)
def test_a_note_names_the_byte_that_is_spelled_otherwise(decode, encode, octet, form, text):
    result = imported(f'{RULE} @pparam="{decode}" \\\n @pparam="{encode}"')
    ((line, found),) = said(result)
    assert profile(result).ring.forms[octet] == form
    assert found.startswith(text)
    assert line == (2 if octet in bytes.fromhex(encode) else 1)


@cases(
    "text, found",
    ("", "no rule with two sets"),
    ("map http://a http://b", "no rule with two sets"),
    (RULE, r"line 1: found '0 set after"),
    (RULE + '@pparam="2F"', r"line 1: found '1 set after"),
    (RULE + '@pparam="2F 2" @pparam=""', r"line 1: found '2F 2'"),
    (RULE + '\\\n@pparam="2F" \\\n@pparam="GG"', r"line 3: found 'GG'"),
    ('@pparam="" @pparam=""', "no rule with two sets"),
    ("\x00\ufffd" * 1000, "no rule with two sets"),
)
def test_a_rule_without_two_sets_is_refused_in_one_message(text, found):
    with pytest.raises(ConfigurationError, match=found):
        imported(text)


@pytest.mark.parametrize("unit", ['"', "'", "\\", "@pparam=", "2F ", '@pparam="2', "- ", "map ", "type: "])
def test_no_text_takes_long(unit):
    with pytest.raises(ConfigurationError):
        imported(unit * (2**17 // len(unit)))


@given(
    st.lists(
        st.sampled_from(
            [
                *("map", "regex_map", "http://a/", "http://b", "@pparam=2F", '@pparam="5B 5D"'),
                SCRIPT,
                *("\\\n", "\n", "#", '"', "- type: map\n"),
            ]
        )
    )
)
def test_any_rules_become_a_profile_that_loads_or_a_message(words):
    try:
        result = imported(" ".join(words))
    except ConfigurationError:
        return
    profile(result)


@cases(
    "target, to, host, upstream",
    (
        "http://(.*)\\.wiki.example/",
        "http://127.0.0.1:1/$1/v1/",
        "*.wiki.example",
        "http://127.0.0.1:1/{1}/v1/",
    ),
    (
        "http://^(.+)\\.wiki\\.example$/",
        "http://127.0.0.1:1/$0/",
        "*.wiki.example",
        "http://127.0.0.1:1/{host}/",
    ),
    ("http://(.*)/", "http://127.0.0.1:1/$1/", "*", "http://127.0.0.1:1/{host}/"),
    ("http://.*/", "http://127.0.0.1:1/", "*", "http://127.0.0.1:1/"),
)
def test_a_regex_map_becomes_a_site_for_a_host_pattern(target, to, host, upstream):
    result = imported(f"regex_map {target} {to} {SETS}")
    assert result.sites == [{"hosts": [host], "upstream": upstream, "origin_host": "upstream"}]


@cases(
    "target, to, text",
    ("http://x([0-9]+)\\.example/", "http://127.0.0.1:1/", "regex_map http://x([0-9]+)"),
    (
        "http://(.*)\\.example/",
        "http://$1.internal.example/",
        "http://$1.internal.example/: an upstream's host",
    ),
    ("http://(.*)\\.example/", "http://127.0.0.1:1/$2/", "http://127.0.0.1:1/$2/: no group is $2"),
    ("http://.*/", "http://127.0.0.1:1/$1/", "http://127.0.0.1:1/$1/: no group is $1"),
)
def test_a_regex_map_that_is_no_site_is_said(target, to, text):
    result = imported(f"# one\nregex_map {target} {to} {SETS}")
    assert all(site["access"] == CLOSED for site in result.sites)
    assert [line for line, each in said(result) if each.startswith(text)] == [2]
    assert any(note.is_open_question for note in result.notes)


def test_a_path_before_a_host_closes_nothing_of_it():
    """Traffic Server has rules without a host for hosts of no other rule."""
    result = imported(f"map /w http://b {SETS}\nmap http://en.example http://a {SETS}")
    assert not any(note.is_open_question for note in result.notes)
    assert all("access" not in each for site in result.sites for each in (site, *site.get("routes", ())))


def test_paths_of_rules_without_a_host_are_an_open_question():
    rules = ("map / http://b", "map http://en.example/w/ http://a", "map http://de.example http://a")
    result = sets_of_rules(*rules)
    assert [note.line for note in result.notes if note.is_open_question] == [2]


def test_a_rule_of_a_listener_goes_before_all_others():
    received = f"map_with_recv_port http://en.example:8080/ http://b @internal {SETS}"
    result = imported(f"map http://en.example/w/ http://a {SETS}\n{received}")
    assert [site["access"] for site in result.sites] == [CLOSED]


def test_a_rule_for_hosts_of_no_site_is_said():
    result = imported(
        f"redirect_temporary http://a http://b\nregex_redirect http://a+x/ http://b\n{RULE}{WIKI}"
    )
    assert [note.line for note in result.notes if note.is_open_question] == [1, 2]


def test_an_import_says_which_hosts_were_of_https_alone():
    notes = said(imported(f"map https://en.example http://a {SETS}"))
    assert [text for _, text in notes if "https alone" in text]


def test_a_regex_map_tells_which_hosts_it_would_have_besides():
    notes = said(imported(f"regex_map http://([^.]+)\\.example/ http://127.0.0.1:1/$1/ {SETS}"))
    assert [text.partition(" is of one label")[1] != "" for _, text in notes].count(True) == 1
    assert any("longer hosts" in text for _, text in notes)
    assert any("fills in no $0 and $1 in a path" in text for _, text in notes)


def test_every_omitted_plugin_and_parameter_has_its_line():
    text = f"""\
.definefilter here @action=allow
map http://en.example http://127.0.0.1:9001 \\
    @plugin=header_rewrite.so @pparam=/etc/trafficserver/rules.config \\
    {SETS} \\
    @pparam=--debug \\
    @plugin=/usr/lib/trafficserver/modules/tslua.so @pparam=/etc/trafficserver/lua/gateway-check.lua \\
    @plugin=unknown.so
"""
    result = imported(text)
    expected = [
        (1, ".definefilter here @action=allow: not part of a profile or a route"),
        (2, "http://en.example: univocal refuses these requests (403)"),
        (3, "@plugin=header_rewrite.so @pparam=/etc/trafficserver/rules.config: changes fields"),
        (5, "@pparam=--debug: a parameter besides the two sets"),
        (
            6,
            "@plugin=/usr/lib/trafficserver/modules/tslua.so "
            "@pparam=/etc/trafficserver/lua/gateway-check.lua",
        ),
        (7, "@plugin=unknown.so: a plugin"),
    ]
    assert [line for line, _ in sorted(said(result))] == [line for line, _ in expected]
    assert all(
        text.startswith(begins) for (_, text), (_, begins) in zip(sorted(said(result)), expected, strict=True)
    )
    assert result.sites[0]["hosts"] == ["en.example"]


def test_the_script_and_the_sets_themselves_are_not_left_out():
    assert said(imported(RULE + WIKI)) == []
    result = imported(RULE.replace("@pparam", "@pparam=--states=8 @pparam") + WIKI)
    assert not any(note.is_open_question for note in result.notes)


@cases(
    "plugin",
    "tslua.so @pparam=/x/check-token.lua",
    "tslua.so @pparam=/normalize-path/check.lua",
    "tslua.so @pparam=/x/check-token.lua @pparam=normalize-path.lua",
    "tslua.so",
    "check.so @pparam=normalize-path.lua",
    "country_acl.so",
)
def test_sets_of_another_script_close_its_route(plugin):
    """The rule is closed, and its script is named."""
    result = imported(f"map http://en.example/ http://127.0.0.1:1/ @plugin={plugin} {WIKI}")
    assert result.sites[0]["access"] == CLOSED
    assert any(note.is_open_question for note in result.notes)
    assert any(text.startswith(f"@plugin={plugin} @pparam=3A 2F") for _, text in said(result))


@cases(
    "option",
    "@action=deny @src_ip=10.0.0.0-10.255.255.255",
    *("@internal", "@method=post", "@ACTION=deny @SRC_IP=10.0.0.1", "# @action=deny @src_ip=10.0.0.1"),
    "\\\n# @action=deny @src_ip=10.0.0.1",
    "@PLUGIN=authproxy.so",
    "@some_guard=on",
)
def test_a_rule_with_a_filter_becomes_a_closed_route(option):
    result = imported(f"{RULE}{WIKI}\n{RULE.replace('example ', 'example/a/ ', 1)}{WIKI} {option}")
    (site,) = result.sites
    assert [(route["path"], route["access"]) for route in site["routes"]] == [("/a/", CLOSED)]
    assert "access" not in site
    assert [note.line for note in result.notes if note.is_open_question] == [2]


@pytest.mark.parametrize("end", [" ", "\r", "\t", "\x85"])
def test_a_line_ends_at_its_newline_alone(end):
    rules = f"{RULE}{WIKI} \\{end}\nmap http://adm.example http://b {SETS} @internal"
    sites = imported(f"{rules}\nregex_map http://(.*)/ http://127.0.0.1:1 {SETS}").sites
    assert [site["hosts"] for site in sites if site.get("access") == CLOSED] == [["adm.example"]]


def test_a_comment_goes_on_behind_a_backslash():
    result = imported(f"{RULE}{WIKI}\n# a comment \\\n{RULE}{WIKI} @internal")
    assert [site["hosts"] for site in result.sites] == [["en.example"]]
    assert not any(note.is_open_question for note in result.notes)


@cases(
    "plugin, is_apart",
    ("cachekey.so @pparam=--include-cookies=session", True),
    ("cachekey.so @pparam=--sort-params=true @pparam=--include-headers=X-User", True),
    ("cachekey.so @pparam=--ua-capture=(mobile)", True),
    ("cachekey.so @pparam=--remove-all-params=true", False),
    ("conf_remap.so @pparam=proxy.config.http.cache.http=0", True),
    ("conf_remap.so @pparam=/etc/cache.config", True),
    ("conf_remap.so @pparam=proxy.config.http.connect_attempts_timeout=5", False),
)
def test_a_plugin_that_keeps_responses_apart_bypasses_the_cache(plugin, is_apart):
    (site,) = imported(f"{RULE}{WIKI} @plugin={plugin}").sites
    assert site.get("cache", {}) == ({"bypass": ["*"]} if is_apart else {})
    assert "access" not in site


@cases("path, closed", ("a", {"/a", "/a*"}), ("a/", {"/a/"}), ("a*", {"/a*"}), ("a/*", {"/a/"}))
def test_a_guarded_prefix_of_bytes_is_closed_by_bytes(path, closed):
    guarded = f"map http://en.example/{path} http://127.0.0.1:1/ @internal"
    (site,) = imported(f"{RULE}{WIKI}\n{guarded}").sites
    assert {route["path"] for route in site["routes"]} == closed
    assert all(route["access"] == CLOSED for route in site["routes"])


def test_a_star_in_a_rule_is_no_route_of_bytes():
    star = RULE.replace("example ", "example/pub* ", 1)
    result = imported(f"{star}{WIKI}\n{RULE}{WIKI} @internal")
    assert all("routes" not in site for site in result.sites)
    note = '/pub* is left out: there "*" stands for itself, in a route for any bytes'
    assert (1, note) in said(result)


@cases(
    "first, rule, closed",
    ("map http://en.example", "map http://en.example/w/", None),  # left out: the first has it
    ("map http://en.example/w", "map http://en.example/wx/", None),
    ("map http://en.example/w/", "map http://en.example", {}),
    ("regex_map http://(.*)[.]example", "map http://en.example", {"/"}),
    ("regex_map http://(.*)[.]example/w/", "map http://en.example", {"/w/"}),
    ("regex_map http://adm[0-9]+.example", "map http://en.example", {}),
    ("regex_map http://adm[0-9]+.example", "map http://adm1.example", {"/"}),
    ("regex_map http://(.*)\\.example", "regex_map http://(.*)\\.en\\.example", {"/"}),
    ("regex_map http://(.*)\\.en\\.example", "regex_map http://(.*)\\.example", {}),
    ("regex_map http://(", "map http://en.example", {"/"}),
    ("regex_map http://([a-z-]+)*!", f"map http://{'en-' * 9}e.example", {}),
    ("map http://en.example/w/", "map https://en.example", {"/", "/w/"}),
    ("map ws://en.example", "map http://en.example", {"/"}),
    ("map wss://en.example/w/", "map https://en.example", {"/w/"}),
    ("regex_map ws://(.*)[.]example/w/", "map http://en.example", {"/w/"}),
    ("map http://en.example/w/?x", "map http://en.example", {"/w/"}),
    ("map http://en.example/%77/", "map http://en.example", {"/w/"}),
    ("map http://EN.example:80/w/", "map http://en.example", {"/w/"}),
    ("map http://en.example./w/", "map http://en.example", {"/w/"}),
    ("map_with_recv_port http://en.example:8080/w/", "map http://en.example", {"/w/"}),
    ("map_with_recv_port http://en.example:8080", "map http://en.example:8080", {"/"}),
    ("regex_map_with_recv_port http://(.*)[.]example:8080/w/", "map http://en.example", {"/w/"}),
    ("regex_map_with_referer http://(.*)[.]example/w/", "map http://en.example", {"/w/"}),
    ("map //w/", "map http://en.example", {}),  # a path: it is for hosts of no other rule
    ("map //w/", "regex_map http://(.*)", {"/w/"}),
    ("map http://en.example//w/", "map http://en.example", {"/w/"}),
    ("map http://user@en.example/w/", "map http://en.example", {"/w/"}),
)
def test_the_first_rule_that_matches_has_the_request(first, rule, closed):
    """Traffic Server asks rules in their order, not the longest path first."""
    result = imported(f"{first} http://127.0.0.1:1 @internal {SETS}\n{rule} http://127.0.0.1:2 {SETS}")
    sites = [site for site in result.sites if "127.0.0.1:2" in str(site)]
    assert bool(sites) is (closed is not None and "/" not in closed)
    for site in sites:
        routes = {route["path"] for route in site.get("routes", []) if route.get("access") == CLOSED}
        assert routes >= set(closed)
        assert "access" not in site
    assert closed is None or not closed or any(note.is_open_question for note in result.notes)


@pytest.mark.parametrize("kind", ["map http://", "MAP http://", "Map ", "map HTTP://"])
def test_a_filtered_rule_without_the_sets_is_closed_too(kind):
    result = imported(f"{RULE}{WIKI}\n{kind}en.example/a/ http://127.0.0.1:1/ @plugin=authproxy.so")
    (site,) = result.sites
    assert site["routes"] == [{"path": "/a/", "access": CLOSED}]


@cases(
    "line",
    *(".activatefilter staff", ".include guards.config", ".usefilter staff", ".ActiveFilter staff"),
    ".guard",
)
def test_a_line_that_may_guard_closes_every_rule(line):
    result = imported(f"{line}\n{RULE}{WIKI}")
    (site,) = result.sites
    assert site["access"] == CLOSED


def sets_of_rules(*rules):
    return imported("\n".join(f"{rule} {SETS}" if "@src" not in rule else rule for rule in rules))


@cases(
    "rule",
    "map_with_referer http://en.example/priv http://127.0.0.1:9002 http://en.example/login ~x",
    "redirect http://en.example/priv http://de.example/",
    "map http://en.example/priv ftp://127.0.0.1:9002",
)
def test_paths_of_rules_that_are_left_out_are_closed(rule):
    result = sets_of_rules("map http://en.example/ http://127.0.0.1:9001", rule)
    (site,) = result.sites
    assert site["routes"] == [{"path": "/priv"} | {"access": CLOSED}, {"path": "/priv*"} | {"access": CLOSED}]
    assert any(note.is_open_question for note in result.notes)


def test_a_rule_without_the_sets_is_closed_beside_the_others():
    plain = "map http://en.example/priv http://127.0.0.1:9002"
    result = imported(f"{RULE.rstrip()} {WIKI}\n{plain}\n")
    (site,) = result.sites
    assert [route["path"] for route in site["routes"]] == ["/priv", "/priv*"]


def test_a_rule_without_a_host_is_for_every_host():
    result = sets_of_rules("map / http://127.0.0.1:9001")
    assert [site["hosts"] for site in result.sites] == [["*"]]


@cases(
    "rule, host",
    ("redirect http://old.example/ http://new.example/", "old.example"),
    ("map ws://old.example/ ws://127.0.0.1:1 @internal", "old.example"),
    ("regex_map wss://(.*)\\.old.example/ ws://127.0.0.1:1 @internal", "*.old.example"),
    ("map http://old.example?x http://127.0.0.1:1 @internal", "old.example"),
)
def test_hosts_of_omitted_rules_are_not_those_of_the_star(rule, host):
    result = sets_of_rules("regex_map http://(.*)/ http://127.0.0.1:9001", rule)
    star, old = result.sites
    assert (star["hosts"], old["hosts"]) == (["*"], [host])
    assert old["access"] == CLOSED


@cases(
    "target, host",
    ("map http://en.example:9/", "en.example:9"),
    ("regex_map http://(.*)\\.w.example:9/", "*.w.example:9"),
)
def test_a_closed_port_is_not_the_site_without_one(target, host):
    result = sets_of_rules("map http://en.example/ http://127.0.0.1:1", f"{target} http://b @src_ip=10.0.0.1")
    first, closed = result.sites
    assert (first["hosts"], closed["hosts"], closed["access"]) == (["en.example"], [host], CLOSED)


@cases("target", "http://adm[0-9]+.example/", "ws://adm[0-9]+.example/", "http://(a|b)?c/")
def test_a_star_gives_way_to_hosts_without_a_site(target):
    result = sets_of_rules(
        f"regex_map {target} http://127.0.0.1:9001", "regex_map http://(.*)/ http://127.0.0.1:9001"
    )
    assert result.sites == []
    assert any(note.is_open_question for note in result.notes)
