"""nginx's servers and locations: what becomes a route, and that whatever does not is said with its line."""

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import cases
from univocal.http.errors import ConfigurationError
from univocal.judge.profiles import builtin_profiles
from univocal.uri.profile import parse
from univocal.uri.sites import resolve
from univocal.uri.target import Canonical, origin_target
from univocal_app.config.site_reader import SiteReader
from univocal_app.config.tables import validate
from univocal_learn.importers.imported import Source, profile_text, sites_text
from univocal_learn.importers.nginx import read
from univocal_learn.importers.site_writer import CLOSED

BUILT_IN = builtin_profiles()


def imported(text, pick=None):
    return read(Source("nginx.conf", text.replace("TO;", "proxy_pass http://127.0.0.1:1;"), pick))


def profile(result):
    return parse({"mine": profile_text(result, "nginx.conf", "mine")}, BUILT_IN)["mine"]


def sites(result):
    """The sites as univocal reads them from the file that is written."""
    configuration = validate(tomllib.loads(sites_text(result, "mine", "profiles")), "univocal.toml")
    return SiteReader("univocal.toml", {"mine": profile(result)}).read(configuration.sites)


def sent(result, target, host=b"en.example"):
    """The prefix of the route for a target, and the target sent to the origin server."""
    found = resolve(target, [host], b"http", sites(result))
    assert isinstance(found, Canonical), found
    return found.route.prefix, origin_target(found)


def said(result):
    return {(note.line, note.text) for note in result.notes}


def table(result):
    (site,) = result.sites
    return site


# The profile.


@cases(
    "text, merges",
    ("merge_slashes off;", False),
    ("location / { TO; }", True),
    ("server { merge_slashes on; }", True),
    ("server { merge_slashes off; location / { TO; } }", False),
    ("http { merge_slashes off; server { listen 80; } }", False),
    ("http { merge_slashes off; server { merge_slashes on; } }", True),
    ("merge_slashes off; location / { TO; }", False),
    ("location / { TO; } merge_slashes off;", False),
)
def test_merge_slashes_is_taken_over(text, merges):
    result = imported(text)
    assert profile(result).merge_slashes is merges
    assert (profile(result).digest == BUILT_IN["nginx"].digest) is merges
    assert not any("merge_slashes" in note for _, note in said(result))


def test_servers_that_differ_in_merge_slashes_are_picked_from():
    text = "server { server_name a.example b.example; merge_slashes off; }\nserver { server_name c.example; }"
    with pytest.raises(ConfigurationError, match=r"on and off.*--pick with one of: a\.example, c\.example"):
        imported(text)
    assert not profile(imported(text, "b.example")).merge_slashes
    assert profile(imported(text, "line 2")).merge_slashes
    with pytest.raises(ConfigurationError, match=r"no server x.*a\.example, b\.example, c\.example"):
        imported(text, "x")
    with pytest.raises(ConfigurationError, match="line 1: found 'merge_slashes maybe'"):
        imported("merge_slashes maybe;")


# Routes.


def test_a_prefix_is_replaced():
    result = imported(
        "server { server_name en.example; location /foo { proxy_pass http://127.0.0.1:9000/bar; } }"
    )
    assert table(result) == {
        "hosts": ["en.example"],
        "upstream": "http://127.0.0.1:9",
        "default": True,
        "origin_host": "upstream",
        "routes": [{"path": "/foo", "upstream": "http://127.0.0.1:9000/bar", "cache": {"bypass": ["*"]}}],
    }
    assert sent(result, b"/foo/%5B-%5D") == (b"/foo", b"/bar/[-]")
    assert sent(result, b"/foobar") == (b"/", b"/foobar")
    assert {text for _, text in said(result)} == {
        "nothing is mapped at /: what no route takes is answered with 502 (http://127.0.0.1:9)",
        "location /foo: is of /foox, too, in nginx; an upstream with a path is for whole segments",
    }


def test_without_a_path_the_target_goes_on_as_it_came():
    result = imported(
        "location / { TO; }\n"
        "location /a/ { proxy_pass http://127.0.0.1:2/; }\n"
        "location /b/ { proxy_pass http://127.0.0.1:3$request_uri; }\n"
    )
    assert table(result)["forward"] == "received"
    assert [route.get("forward") for route in table(result)["routes"]] == ["canonical", None, None, None]
    assert sent(result, b"/x%2fy//z") == (b"/", b"/x%2fy//z")
    assert sent(result, b"/a/x%2fy//z") == (b"/a/", b"/x/y/z")
    assert sent(result, b"/b/x%2fy//z") == (b"/b/", b"/b/x%2fy//z")


def test_a_prefix_of_bytes_is_one_here_too():
    result = imported("location /a { TO; } location ^~ /b { proxy_pass http://127.0.0.1:2; }")
    guarded = "location /a { proxy_pass http://b; } location /a/ { proxy_pass http://c; deny 10.0.0.1; }"
    assert sent(imported(guarded), b"/a")[0] == b"/a*"
    routes = [(b"/a", b"/a*"), (b"/a/b", b"/a*"), (b"/admin/x", b"/a*"), (b"/bx", b"/b*")]
    assert [(target, sent(result, target)[0]) for target, _ in routes] == routes


def test_a_template_of_only_the_path_is_the_target():
    result = imported("location / { proxy_pass http://127.0.0.1:1$uri$is_args$args; }\n")
    assert table(result)["upstream"] == "http://127.0.0.1:1"
    assert sent(result, b"/a//%5B?q") == (b"/", b"/a/[?q")


def test_a_template_holds_the_path():
    result = imported(
        "location / { proxy_pass http://127.0.0.1:1/x$uri$is_args$args; }\n"
        "location /b/ { proxy_pass http://127.0.0.1:1/y$document_uri; }\n"
    )
    assert sent(result, b"/%5B%0D?q".replace(b"%0D", b"")) == (b"/", b"/x/[?q")
    assert sent(result, b"/b/%20") == (b"/b/", b"/y/b/%20")
    assert (
        2,
        "proxy_pass http://127.0.0.1:1/y$document_uri: nginx drops the query; here it goes on",
    ) in said(result)


@cases(
    "location, target",
    ('"/a b"', b"/a%20b/x"),
    ("/k\u00e4se", b"/k%C3%A4se/x"),
    ("/100%", b"/100%25/x"),
    ("/100%25", b"/100%2525/x"),
    ("'/a\"b'", b"/a%22b/x"),
    ("/a[1]", b"/a[1]/%78"),
    ("/what?", b"/what%3F/x"),
    ("^~ /plain", b"/plain/x"),
)
def test_a_location_is_what_nginx_compares_with_a_decoded_path(location, target):
    result = imported(f"location {location} {{ proxy_pass http://127.0.0.1:1/r; }}")
    assert sent(result, target)[1] == b"/r/x"


def test_a_location_with_a_reserved_character_has_one_spelling():
    result = imported("location /a[1]/ { proxy_pass http://127.0.0.1:1/; }")
    assert resolve(b"/a%5B1%5D/x", [b"en.example"], b"http", sites(result)).reasons == ("crosses-route",)
    assert any(
        "/a[1]/ is taken in this spelling only; with escapes it is refused" in text
        for _, text in said(result)
    )


def test_nested_locations_and_the_longest_prefix():
    result = imported(
        "location / { TO;\n"
        "  location /a/ { location /a/b/ { proxy_pass http://127.0.0.1:3/; }\n"
        "  proxy_pass http://127.0.0.1:2/; } }"
    )
    assert sent(result, b"/a/b/c") == (b"/a/b/", b"/c")
    assert sent(result, b"/a/c") == (b"/a/", b"/c")


@cases(
    "around, inside, upstream",
    ("set $app 127.0.0.1;", "proxy_pass http://$app:81;", "http://127.0.0.1:81"),
    ("", "set $app b; set $p http; proxy_pass $p://${app}:81;", "http://b:81"),
    ("set $app a;", "set $app b; proxy_pass http://$app:81;", "http://b:81"),
    ("set $app films;", "proxy_pass http://$app;", "http://127.0.0.1:7"),
    ("set $app a;", "proxy_pass http://$app:81$request_uri;", "http://a:81"),
    ("set $app a;", "proxy_pass http://$app:81/x;", None),  # nginx drops the rest of the path
    ("set $app a; set $app b;", "proxy_pass http://$app:81;", None),
    ("set $app a; location ~ ^/x(?<app>.) { return 404; }", "proxy_pass http://$app:81;", None),
    ("set $app $host;", "proxy_pass http://$app:81;", None),
    ("set $app a; rewrite ^/x /y;", "proxy_pass http://$app:81;", None),
    ("set $app a;", "if ($arg_x) { set $app b; } proxy_pass http://$app:81;", None),
    ("", "proxy_pass http://$app:81; location /a/ { set $app a; }", None),
)
def test_a_variable_with_one_fixed_value_is_its_value(around, inside, upstream):
    text = f"upstream films {{ server 127.0.0.1:7; }} server {{ {around} location / {{ {inside} }} }}"
    assert [site["upstream"] for site in imported(text).sites if "access" not in site] == (
        [upstream] if upstream else []
    )


@cases(
    "directives, expected",
    ("proxy_redirect off;", {"redirects": "keep"}),
    ("proxy_redirect default;", {}),
    ("proxy_cookie_path /v1/ /;", {"cookie_path": "map"}),
)
def test_redirects_and_cookies_are_mapped_as_there(directives, expected):
    other = "location /b/ { proxy_pass http://b; }"
    (site,) = imported(f"server {{ {directives} location / {{ proxy_pass http://a; }} {other} }}").sites
    assert {key: site[key] for key in ("redirects", "cookie_path") if key in site} == expected
    inside = f"location /a/ {{ {directives} proxy_pass http://b; }}"
    (site,) = imported(f"server {{ location / {{ proxy_pass http://a; }} {inside} }}").sites
    (route,) = (each for each in site["routes"] if each["path"] == "/a/")
    assert {key: route[key] for key in ("redirects", "cookie_path") if key in route} == expected
    assert not {"redirects", "cookie_path"} & site.keys()


# Hosts.


def test_server_names_become_hosts_or_are_said():
    result = imported(
        "server { server_name en.example *.wiki.example .both.example _ ~^x www.* $hostname bad/host;\n"
        "location / { TO; } }\n"
        "server { server_name EN.example en.example; location / { proxy_pass http://127.0.0.1:2; } }"
    )
    assert [site["hosts"] for site in result.sites] == [
        ["en.example", "*.wiki.example", "both.example", "*.both.example", "~^x", "www.*"]
    ]
    assert result.sites[0]["default"] is True
    notes = "\n".join(text for _, text in sorted(said(result)))
    for name in ("server_name $hostname:", "the host 'bad/host'", "the host 'EN.example' is line 1's"):
        assert name in notes


@cases(
    "header, origin_host",
    ("", "upstream"),
    ("proxy_set_header Host $host;", "site"),
    ("proxy_set_header host $http_host;", "site"),
    ("proxy_set_header Host $proxy_host;", "upstream"),
    ("proxy_set_header Host other.example;", "other.example"),
    ("proxy_set_header X-Real-IP $remote_addr;", "upstream"),
)
def test_the_host_that_is_sent(header, origin_host):
    for text in (
        f"server {{ {header} location / {{ TO; }} }}",
        f"http {{ {header} server {{ location / {{ TO; }} }} }}",
        f"http {{ proxy_set_header Host $host; server {{ location / {{ {header or 'proxy_set_header a b;'}\n"
        "TO; } } }",
    ):
        assert table(imported(text))["origin_host"] == origin_host


def test_hosts_that_differ_by_location_and_variables_are_said():
    result = imported(
        "server { location / { TO; proxy_set_header Host $host:$server_port; }\n"
        "location /a/ { proxy_pass http://127.0.0.1:1/; proxy_set_header Host a.example; } }"
    )
    assert (1, "Host a.example at /a/: univocal sends one Host for all of a site (origin_host)") in said(
        result
    )
    assert (1, "Host $host:$server_port: a variable; the site's own host is sent") in said(result)
    assert table(result)["origin_host"] == "site"


def test_the_discard_port_is_an_upstream_like_others():
    (site,) = imported(
        "server { server_name a.example; location / { proxy_pass http://127.0.0.1:9; } }"
    ).sites
    assert (site["upstream"], site.get("access")) == ("http://127.0.0.1:9", None)


def test_an_upstream_by_name():
    result = imported(
        "upstream wiki { least_conn; server 127.0.0.1:9001 weight=2; server unix:/x; server b.example; }\n"
        "upstream none { server 127.0.0.1:1 down; }\n"
        "location / { proxy_pass http://wiki; }\nlocation /s/ { proxy_pass http://none/; }"
    )
    assert table(result)["upstream"] == [
        {"url": "http://127.0.0.1:9001", "weight": 2},
        "unix:///x",
        "http://b.example",
    ]
    assert table(result)["origin_host"] == "wiki"
    assert table(result)["routes"] == [{"path": path, "access": CLOSED} for path in ("/s/", "/s")]
    assert {(line, text.partition(":")[0]) for line, text in said(result)} == {
        (1, "least_conn"),
        (2, "server 127.0.0.1"),
        (2, "upstream none"),
        (4, "location /s/"),
    }


@cases(
    "location, passed, upstream, forward",
    ("/", "http://unix:/run/x", "unix:///run/x", "received"),
    ("/", "http://unix:/run/x:", "unix:///run/x", "received"),
    ("/", "http://unix:/run/x:$request_uri", "unix:///run/x", "received"),
    ("/", "http://unix:/run/my%20x:/", "unix:///run/my%20x", None),
    ("/", "http://unix:/run/x:$uri$is_args$args", "unix:///run/x", None),
    ("/", "http://sock", "unix:///run/y", "received"),
    ("/", "http://sock/", "unix:///run/y", None),
)
def test_a_socket(location, passed, upstream, forward):
    result = imported(
        f"upstream sock {{ server unix:/run/y; }}\nlocation {location} {{ proxy_pass {passed}; }}"
    )
    assert table(result)["upstream"] == upstream
    assert table(result)["origin_host"] == ("sock" if "sock" in passed else "localhost")
    assert table(result).get("forward") == forward


@cases(
    "servers, passed, upstream",
    ("server a:1; server b:2;", "http://app", ["http://a:1", "http://b:2"]),
    ("server a:1; server b:2;", "http://app/x/", ["http://a:1/x/", "http://b:2/x/"]),
    ("server a:1; server b:2;", "https://app$request_uri", ["https://a:1", "https://b:2"]),
    ("server a:1; server b:2;", "http://app/x$uri", ["http://a:1/x{path}", "http://b:2/x{path}"]),
    ("server a:1; server b:2 backup; server c:3 down;", "http://app",
     ["http://a:1", {"url": "http://b:2", "backup": True}]),
    ("server a:1; server b:2 backup weight=2;", "http://app",
     ["http://a:1", {"url": "http://b:2", "weight": 2, "backup": True}]),
    ("server a:1; server a:1 backup;", "http://app", "http://a:1"),
    ("server a:1 max_fails=2; server a:1 weight=2; server b:2;", "http://app",
     [{"url": "http://a:1", "weight": 3}, "http://b:2"]),
    ("server a:1 weight=3;", "http://app", "http://a:1"),
    ("server unix:/run/x; server b:2;", "http://app", ["unix:///run/x", "http://b:2"]),
    ("server unix:/run/x; server b:2;", "https://app", "https://b:2"),
    ("server unix:/run/x; server b:2;", "http://app/x/", "http://b:2/x/"),
)  # fmt: skip
def test_the_servers_of_an_upstream_share_the_requests(servers, passed, upstream):
    result = imported(f"upstream app {{ {servers} }}\nlocation / {{ proxy_pass {passed}; }}")
    assert table(result)["upstream"] == upstream


def test_notes_tell_of_failing_and_down_servers():
    result = imported(
        "upstream app {\nserver a:1 max_fails=2 fail_timeout=5s;\nserver b:2 backup;\nserver c:3 down;\n}\n"
        "location / { proxy_pass http://app; }"
    )
    assert {(line, text.rpartition(": ")[2]) for line, text in said(result)} == {
        (2, "see choice, fails and eject of [origin]"),
        (4, "it is down; left out"),
    }


# Directives without a place in a profile or a route.


@cases(
    "directive, why",
    ("rewrite ^/a(.*)$ /b$1 last;", "changes what a URL means"),
    ("if ($args ~ x) { return 403; }", "changes what a URL means"),
    ("try_files $uri /index.php;", "changes what a URL means"),
    ("set $x $uri;", "no setting has variables"),
    ("if ($http_x_a) { set $y 1; }", "lets its requests pass"),
    ("auth_request off;", "refuses nothing and withholds nothing, with this value"),
    ("ssl_verify_client optional;", "refuses nothing and withholds nothing, with this value"),
    ("if ($host != a) { return 301 http://$host$request_uri; }", "univocal serves them"),
    ("if ($host != a) { return 301 http://a$request_uri; }", "univocal refuses these requests (403)"),
    ("if ($scheme = http) { return 302 https://b$request_uri; }", "univocal refuses these requests"),
    ("if ($http_x_forwarded_proto = http) { return 301 https://$host$request_uri; }", "univocal serves"),
    ("if ($request_method = OPTIONS) { return 204; }", "nginx answers these requests by itself"),
    ("error_page 404 /404.html;", "left out: see [server] error_pages"),
    ("proxy_intercept_errors on;", "left out: see [server] error_pages, which are for univocal's own"),
    ("root /srv;", "nginx answers this by itself"),
    ("alias /srv/;", "nginx answers this by itself"),
    ("fastcgi_pass unix:/run/php.sock;", "nginx answers this by itself"),
    ("internal;", "guards what nginx serves"),
    ('auth_basic "closed";', "no file of users"),
    ("include more.conf;", "the other file is not read"),
    ("proxy_redirect off;", "univocal maps Location"),
    ("gzip_types text/css;", "left out: see [cache] compress"),
    ("add_header Age 1;", "left out: see [response] set and remove"),
    ("add_header X-Frame-Options DENY;", "univocal sets it on errors, too"),
    ("allow unix:;", "no network; left out"),
    ("limit_req zone=one;", "left out: see [sites.access] rate"),
    ("anything_else a 'b c';", "not part of a profile or a route"),
    ("proxy_set_header X-Real-IP $remote_addr;", "sent with requests past the cache"),
    ("location ~ (?=x) { proxy_pass http://127.0.0.1:2; }", "~ (?=x): no path of a route, so it is left out"),
    ("location @named { proxy_pass http://127.0.0.1:2; }", "no route leads there, so it is left out"),
    ("location x { proxy_pass http://127.0.0.1:2; }", "nginx never comes here: each path begins with /"),
    ("location //x { proxy_pass http://127.0.0.1:2; }", "nginx never comes here: it merges slashes"),
    ("location /empty/ { }", "no proxy_pass that could be taken over"),
    ("location /v/ { proxy_pass http://$backend; }", "no http:// or https:// and a host"),
    ("location /v/ { proxy_pass http://a$uri/x; }", "variables other than $uri"),
    ("location /v/ { proxy_pass http://a/x$request_uri; }", "variables other than $uri"),
    ("location /v/ { proxy_pass; }", "no http:// or https:// and a host"),
    ("location /v/ { proxy_pass http://unix:/run/x:/; }", "a path behind a socket; left out"),
    ("location /v/ { proxy_pass http://unix:/run/x:/a$uri; }", "a path behind a socket; left out"),
    ("location /v/ { proxy_pass https://unix:/run/x; }", "TLS over a socket; left out"),
    ("location /v/ { proxy_pass http://a/%2e/; }", "/v/ is left out: found"),
    ("location /v/../w { proxy_pass http://a/; }", "/v/../w is left out: found"),
    (
        "location /v/ { proxy_pass http://a/x; }",
        "nginx makes http://a/xx of /v/x, not http://a/x/x; left out",
    ),
    ("location /v { proxy_pass http://a/; }", "nginx makes http://a//x of /v/x; here it is http://a/x"),
)
@cases("around", "server {{\n{} location / {{ TO; }} }}", "location / {{ TO;\n{} }}")
def test_nothing_is_dropped_silently(directive, why, around):
    result = imported(around.format(directive))
    assert [text for line, text in said(result) if line == 2 and why in text] != []
    note = next(text for _, text in said(result) if why in text)
    assert f"#   line 2: {note}" in profile_text(result, "nginx.conf", "mine")
    assert table(result)["upstream"] == "http://127.0.0.1:1"
    profile(result)
    sites(result)


def test_outside_servers_too():
    text = "worker_processes 2;\nevents { }\nhttp {\nmap $uri $x { a b; }\n"
    text += "server { location / { proxy_pass http://a; } }\n}"
    assert {(line, note.partition(":")[0]) for line, note in said(imported(text))} == {
        (1, "worker_processes 2"),
        (2, "events"),
        (4, "map $uri $x"),
    }


def test_two_locations_of_one_path():
    result = imported("location /a/ { proxy_pass http://a/; }\nlocation /a/ { proxy_pass http://b/; }")
    assert (2, "/a/ is left out: line 1 has it, too") in said(result)


# Syntax.


@cases(
    "text, found",
    ("", "no directive"),
    ("# only a comment", "no directive"),
    ("server {", "line 1: found 'server'; allowed: a directive that ends with ';'"),
    ("server {\n  listen 80\n}", "line 3: found \"'}' after 'listen'\""),
    ("}", "line 1: found \"'}' without a block\""),
    ("\n;", "line 2: found \"';' without a directive before it\""),
    ("{ }", "without a directive before it"),
    ('server_name "a;\n', "line 1: found 'a quotation mark that nothing closes'"),
    ("a 'b", "a quotation mark that nothing closes"),
    ("a {" * 17, "blocks 16 deep"),
    ("listen 80", "line 1: found 'listen'"),
)
def test_invalid_configurations_are_refused_and_name_the_mistake(text, found):
    with pytest.raises(ConfigurationError) as refused:
        imported(text)
    assert found in str(refused.value)


def test_quotes_comments_and_braces_of_variables():
    result = imported(
        "# location /no { proxy_pass http://a; }\n"
        "location '/it\\'s' { proxy_pass \"http://127.0.0.1:1/\\\"\"; }\n"
        "location /a#b { proxy_pass http://127.0.0.1:2/c; add_header X ${uri}x; add_header Y a}b; }\n"
    )
    assert [route["path"] for route in table(result)["routes"]] == ["/it's", "/a%23b"]
    assert (2, "/it's is left out: found '/\"'; allowed") in {
        (line, text.partition(": a path")[0]) for line, text in said(result)
    }
    assert (3, "add_header X ${uri}x: left out: see [response] set and remove") in said(result)
    assert table(result)["routes"][1]["response"] == {"set": {"Y": "a}b"}}


@cases("blank, spelled", ("\u00a0", "%C2%A0"), ("\u2003", "%E2%80%83"), ("\x0b", "%0B"), ("\x85", "%C2%85"))
def test_blanks_that_are_none_for_nginx_are_letters(blank, spelled):
    result = imported(f"location / {{ proxy_pass http://a; }} location =/a{blank}b {{ deny all; }}")
    closed = {"access": {"deny": ["0.0.0.0/0", "::/0"]}}
    assert table(result)["routes"] == [{"path": f"=/a{spelled}b"} | closed]


@cases("unit", "{", "'", '"', "\\", "${", "$", "a ")
def test_no_text_takes_long(unit):
    with pytest.raises(ConfigurationError):
        imported(unit * (2**17 // len(unit)))


@cases("unit", "a;", "location /a { proxy_pass http://b; } ")
def test_no_number_of_directives_takes_long(unit):
    assert imported(unit * (2**15 // len(unit))).notes


WORDS = ["server {", "location / {", "location /a/ {", "location ~ x {", "}", "proxy_pass http://a/b/;"]
WORDS += ["proxy_pass http://a;", "server_name a.example;", "merge_slashes off;", "http {", "upstream a {"]
WORDS += ["server b:1;", "server c:1 weight=2 backup;", "server d:1 weight=99999;", "rewrite x y;"]
WORDS += ["\n", "'", "#"]


@given(st.lists(st.sampled_from(WORDS), max_size=30))
def test_any_written_configuration_loads_or_is_a_message(words):
    try:
        result = imported(" ".join(words))
    except ConfigurationError:
        return
    profile(result)
    if result.sites:
        sites(result)


UNKNOWN = st.lists(st.integers(0, 99).map("directive_{} a;".format), max_size=3)
LOCATIONS = st.lists(
    st.builds(
        "location {} {{ {} {} }}".format,
        st.sampled_from(["/", "/a", "/a/", "= /b", "~ x", "@y", "/../z"]),
        UNKNOWN.map(" ".join),
        st.sampled_from(["", "proxy_pass http://a/b/;", "proxy_pass http://$x;", "proxy_pass http://a;"]),
    )
)


@given(UNKNOWN, LOCATIONS)
def test_every_directive_becomes_a_route_or_is_said(unknown, locations):
    result = imported("server { listen 80; " + " ".join([*unknown, *locations]) + "}")
    told = " ".join(text for _, text in said(result))
    for line in [*unknown, *locations]:
        name, _, rest = line.partition(" ")
        if name != "location":
            assert f"{name} a" in told
            continue
        path = rest.partition(" {")[0]
        routes = [
            route["path"] for site in result.sites for route in [{"path": "/"}, *site.get("routes", [])]
        ]
        assert {path.replace(" ", ""), f"{path}*"} & {*routes} or path in told
        if path.startswith("/"):
            assert all(each in told for each in rest.split() if each.startswith("directive_"))


LUA = """\
server {
    init_by_lua_block { local s = "}" }
    location / {
        set_by_lua_block $place { return ngx.var.host .. '}"' }
        rewrite_by_lua_block {
            -- a brace } and a quotation mark " in a comment
            --[==[ and } in ]] a long one ]==]
            local t = { ["}"] = [[ } ]], '\\'}' }
            if t then ngx.exit(400) end
        }
        TO;
    }
    location /lua { content_by_lua_block { ngx.say({ "}" }) } }
    location /file { content_by_lua_file /etc/nginx/a.lua; }
}
"""


def test_blocks_of_lua_are_left_out_by_line():
    result = imported(LUA)
    assert table(result)["upstream"] == "http://127.0.0.1:1"
    assert sorted((line, text) for line, text in said(result) if "_by_lua" in text) == [
        (2, "init_by_lua_block: not part of a profile or a route"),
        (
            4,
            "set_by_lua_block $place: "
            "changes what a URL means; [[rewrite]] knows substrings only (docs/profiles.md)",
        ),
        (
            5,
            "rewrite_by_lua_block: "
            "changes what a URL means; [[rewrite]] knows substrings only (docs/profiles.md); "
            "univocal refuses these requests (403) until [sites.access] says who has access",
        ),
        (
            13,
            "content_by_lua_block: nginx answers this by itself; univocal maps paths to origin servers only; "
            "univocal refuses these requests (403) until [sites.access] says who has access",
        ),
        (
            14,
            "content_by_lua_file /etc/nginx/a.lua: "
            "nginx answers this by itself; univocal maps paths to origin servers only; "
            "univocal refuses these requests (403) until [sites.access] says who has access",
        ),
    ]
    assert {line for line, text in said(result) if "refuses these requests" in text} == {5, 13, 14}


def test_a_block_of_lua_that_nothing_closes_is_an_error():
    with pytest.raises(ConfigurationError, match=r"line 2.*a block of Lua that nothing closes"):
        imported("location / {\ncontent_by_lua_block { local s = '}'\n")


def test_an_argument_named_like_a_lua_block_begins_none():
    assert table(imported("location / { set $a x_by_lua_block; TO; }"))


LIMITS = """
http {
    client_max_body_size 8m;
    proxy_read_timeout 90s;
    server {
        server_name en.example;
        location / { proxy_pass http://127.0.0.1:9001; }
        location /slow/ { proxy_read_timeout 5m; client_max_body_size 2g; proxy_pass http://127.0.0.1:9002; }
    }
}
"""


def test_timeouts_and_each_largest_body_are_taken_over():
    result = imported(LIMITS)
    assert result.server == {"trusted_proxies": [], "max_body": 2 << 30}
    (site,) = result.sites
    assert site["origin"] == {"read_timeout": 90}
    root, slow, _ = site["routes"]
    assert slow["origin"] == {"read_timeout": 300}
    assert (root["path"], root["max_body"]) == ("/", 8 << 20)
    assert "max_body" not in slow
    assert not [note for note in result.notes if "proxy_read_timeout" in note.text]


@cases(
    "second, trusted, is_noted",
    ("proxy_protocol", "set_real_ip_from 10.0.0.0/8;", False),
    ("", "set_real_ip_from 10.0.0.0/8;", True),
    ("", "", True),
)
def test_a_listener_with_proxy_headers_stays_one(second, trusted, is_noted):
    text = f"""server {{ listen 80 proxy_protocol; listen 8080 {second}; server_name en.example; {trusted}
    real_ip_header proxy_protocol; allow 192.0.2.1; deny all;
    location / {{ proxy_pass http://127.0.0.1:9001; }} }}"""
    result = imported(text)
    own = {"address": "0.0.0.0:8080", "proxy_protocol": True} if second else "0.0.0.0:8080"
    assert result.server["listen"] == [{"address": "0.0.0.0:80", "proxy_protocol": True}, own]
    assert result.server["trusted_proxies"] == ([] if is_noted else ["10.0.0.0/8"])
    is_closed = result.sites[0]["access"].get("deny") == CLOSED["deny"]
    assert is_closed is (bool(trusted) and is_noted)
    assert any("PROXY headers" in note.text and note.is_open_question for note in result.notes) is is_noted


def test_a_slow_location_shares_the_servers_of_its_site():
    text = """server { server_name en.example; TO;
    location / { TO; }
    location /slow/ { TO; proxy_read_timeout 5m; }
    location /path/ { proxy_pass http://127.0.0.1:1/v1/; proxy_read_timeout 5m; } }"""
    (site,) = imported(text).sites
    routes = {route["path"]: route for route in site["routes"]}
    assert "upstream" not in routes["/slow/"]
    assert routes["/slow/"]["origin"] == routes["/path/"]["origin"] == {"read_timeout": 300}
    assert routes["/path/"]["upstream"] == "http://127.0.0.1:1/v1/"


@pytest.mark.parametrize(("value", "seconds"), [("30", 30), ("500ms", 0.5), ("1m30s", 90), ("soon", None)])
def test_durations_are_read_as_nginx_reads_them(value, seconds):
    text = f"server {{ proxy_read_timeout {value}; proxy_pass http://127.0.0.1:9001; }}"
    (site,) = imported(text).sites
    assert site.get("origin") == (None if seconds is None else {"read_timeout": seconds})


REDIRECTED = """
server { listen 80; server_name en.example; return 301 https://$host$request_uri; }
server { listen 443 ssl; server_name en.example; location / { proxy_pass http://127.0.0.1:9001; } }
"""


def test_a_redirecting_server_leaves_its_host_to_the_next():
    result = imported(REDIRECTED)
    assert table(result)["hosts"] == ["en.example"]
    assert not [note for note in result.notes if "one site's only" in note.text]


@cases(
    "directive, table",
    ("limit_req zone=one", "[sites.access]"),
    ("add_header Age 1", "[response]"),
    ("gzip_types text/css", "[cache] compress"),
    ("ssl_certificate cert.pem", "[server] tls_cert"),
)
def test_the_message_names_the_setting_that_exists(directive, table):
    text = f"server {{ {directive}; proxy_pass http://127.0.0.1:9001; }}"
    assert any(table in note.text for note in imported(text).notes)


HERE = 'upstream = "http://127.0.0.1:1"'


@cases(
    "text, written",
    ('location / { if ($http_x ~ "(") { return 403; } TO; }', "access = { deny"),
    ("location = /a { TO; } rewrite ( /b; location / { TO; }", "access = { deny"),
    (f"location = /{'ab-' * 9}a {{ TO; }} rewrite ^/([\\w-]+)*/amp$ /$1 permanent;", HERE),
    ("location / { try_files $uri @app; } location @app { root /a; }", ""),
    ("location /a/ { rewrite ^/b/(.*)$ /$1 break; TO; } location / { TO; }", f"{HERE}\naccess"),
    ("location /a/ { rewrite ^/a/(.*)$ /b$uri break; TO; } location / { TO; }", '"~^/a/(.*)$"'),
    ("upstream u { server a:1; keepalive 7; } location / { proxy_pass http://u; }", "{ max_idle = 7 }"),
    ("upstream u { server a:1 backup; server b:1 backup; } location / { proxy_pass http://u; }", '["http'),
    ("upstream u { auth_jwt x; server a:1; } location / { proxy_pass http://u; }", ""),
    ("listen unix:/run/a.sock; listen 80; location / { TO; }", '"unix:///run/a.sock"'),
    ("set_real_ip_from a.example; deny 10.0.0.1; location / { TO; }", '"::/0"] }'),
    ("location / { TO; proxy_set_header X-Forwarded-Ssl on; }", HERE),
    ("location / { TO; expires modified +1h; }", HERE),
)
def test_rare_directives_are_imported_or_closed(text, written):
    result = imported(text)
    assert written in (sites_text(result, "mine", "profiles") if result.sites else "")
    assert bool(result.sites) is bool(written)
    assert written or any(note.is_open_question for note in result.notes)
