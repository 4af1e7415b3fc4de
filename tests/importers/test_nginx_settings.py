"""nginx's access rules, fields, compression and backups: taken over where they have an equal, else closed."""

import ipaddress
import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import cases
from univocal.judge.access import OwnRates, Restriction, denial_of
from univocal.judge.profiles import builtin_profiles
from univocal.judge.trust import Peer, networks
from univocal.uri.profile import parse
from univocal.uri.sites import resolve
from univocal.uri.target import Canonical
from univocal_app.config.site_reader import SiteReader
from univocal_app.config.tables import AccessTable, validate
from univocal_learn.importers.imported import Source, profile_text, sites_text
from univocal_learn.importers.nginx import read
from univocal_learn.importers.nginx_settings import LISTED
from univocal_learn.importers.site_writer import CLOSED, NOWHERE

# Short words of the texts below, for directives that many of them share.
WORDS = {"TRY;": "try_files $uri @b;", "USERS;": "auth_basic Staff; auth_basic_user_file users;"}
WORDS |= {"TO;": "proxy_pass http://127.0.0.1:1;", "IF {": "if ($http_x_a) {"}


def imported(text):
    for word, directive in WORDS.items():
        text = text.replace(word, directive)
    return read(Source("nginx.conf", text))


def found_by(result, target, host=b"en.example"):
    """The tables of the site and of the routes in which a path lies; None: no site has the host."""
    configuration = validate(tomllib.loads(sites_text(result, "mine", "profiles")), "univocal.toml")
    profile = parse({"mine": profile_text(result, "nginx.conf", "mine")}, builtin_profiles())["mine"]
    found = resolve(
        target, [host], b"http", SiteReader("univocal.toml", {"mine": profile}).read(configuration.sites)
    )
    if not isinstance(found, Canonical):
        return None
    site = next(each for each in configuration.sites if each.hosts[0] == found.site.name)
    written = {each.path.encode(): each for each in site.routes}
    return site, [written.get(route.prefix) for route in (found.route, *found.other_routes)]


def access(result, target, host=b"en.example"):
    """The access that the written file gives to a path, as univocal reads it; None: no site has the host."""
    return next(accesses(result, target, host), None)


def accesses(result, target, host=b"en.example"):
    """The access of each route in which a path lies, by any reading: first that of its own route."""
    site, routes = found_by(result, target, host) or (None, ())
    for own in routes:
        merged = site.access.model_dump(exclude_unset=True)
        yield merged | (own.access.model_dump(exclude_unset=True) if own else {})


def admits(table, address):
    """Tell whether a client has access, by its address alone."""
    read = AccessTable(**table)
    restriction = Restriction("a", networks(read.allow), networks(read.deny))
    return denial_of(restriction, Peer([], b"http", address), address, [], OwnRates(), 0.0) is None


OF_A = {"refuse": {"header:x-a": ["~^(?:[^0]|0.)"]}}
READING = {"require": {"method": ["~^(?:GET|HEAD)$"]}}
BOTH = {"basic": "users", "deny": ["10.0.0.1/32"]}
OF_B = {"refuse": {"cookie:b": ["~^(?:[^0]|0.)"]}}


def site(directives, locations="location / { TO; }"):
    return f"server {{ server_name en.example; {directives} {locations} }}"


NO_PAGE = ".{0,10}$|[^h]|h[^t]|ht[^t]|htt[^p]|http[^s:]|https[^:]|https?:[^/]|https?:/[^/]"
REFERERS = {"require": {"header:Referer": [rf"~(?i)^(?:{NO_PAGE}|https?://[^/:]+\.a\.example(?:[/:]|$))"]}}


@cases(
    "directives, expected",
    ("auth_basic 'Staff'; auth_basic_user_file users;", {"basic": "users"}),
    ("auth_basic off; auth_basic_user_file users;", {}),
    ("allow 10.0.0.0/8; deny all;", {"allow": ["10.0.0.0/8"]}),
    ("deny 10.0.0.1;", {"deny": ["10.0.0.1/32"]}),
    ("deny 10.0.0.1; allow all;", {"deny": ["10.0.0.1/32"]}),
    ("allow 10.0.0.0/8; allow 2001:db8::/32; deny all;", {"allow": ["10.0.0.0/8", "2001:db8::/32"]}),
    ("allow 10.0.0.9/8; deny 10.1.0.0/16; deny all;", {"allow": ["10.0.0.0/8"]}),
    ("allow 10.0.0.0/8;", {}),
    ("deny all;", CLOSED),
    ("allow unix:; deny all;", CLOSED),
)
def test_access_rules_with_an_equal_are_written(directives, expected):
    inside = f"location / {{ {directives} TO; }}"
    for text in (site(directives), site("", inside), f"http {{ {directives} {site('')} }}"):
        result = imported(text)
        assert access(result, b"/x") == expected
        assert not any(note.is_open_question for note in result.notes)


@cases(
    "directives, expected",
    ("limit_except GET { deny all; }", {"require": {"method": ["~^(?:GET|HEAD)$"]}}),
    ("if ($http_x_user = 'bob') { return 403; }", {"refuse": {"header:x-user": ["bob"]}}),
    (
        'if ( $http_user_agent ~* "(bot|\\.curl)" ) { set $x 1; return 444; }',
        {"refuse": {"header:user-agent": [r"~(?i)(bot|\.curl)"]}},
    ),
    ("if ($cookie_who) { return 403; }", {"refuse": {"cookie:who": ["~^(?:[^0]|0.)"]}}),
    (
        "if ($request_method !~ ^(GET|HEAD)$) { return 405; } if ($request_uri ~ \\\\.env) { return 404; }",
        {"refuse": {"target": [r"~\.env"]}, "require": {"method": ["~^(GET|HEAD)$"]}},
    ),
    ("valid_referers none blocked *.a.example; if ($invalid_referer) { return 403; }", REFERERS),
)
def test_conditions_with_an_equal_are_written(directives, expected):
    inside = f"location / {{ {directives} TO; }}"
    for text in (site(directives), site("", inside)):
        result = imported(text)
        assert access(result, b"/x") == expected
        assert not any(note.is_open_question for note in result.notes)
        assert access(imported(f"underscores_in_headers on; {text}"), b"/x") == CLOSED


@cases(
    "directive, expected",
    ("if ($cookie_session = '') { return 302 /login; }", {"refuse": {"cookie:session": [""]}}),
    ("if ($http_x_user != ann) { return 200 no; }", {"require": {"header:x-user": ["ann"]}}),
    ("if ($http_x_key) { set $args role=guest; }", {"refuse": {"header:x-key": ["~^(?:[^0]|0.)"]}}),
    ("if ($request_method = POST) { rewrite ^ /b last; }", {"refuse": {"method": ["POST"]}}),
    ("if ($http_upgrade = h) { proxy_pass http://b; }", {"refuse": {"header:upgrade": ["h"]}}),
)
def test_requests_that_a_condition_sends_elsewhere_are_refused(directive, expected):
    inside = f"location / {{ {directive} TO; }}"
    for text in (site(directive), site("", inside)):
        result = imported(text)
        assert access(result, b"/x") == expected
        assert (
            [each for each in questions(result) if "meet this condition" in each] == questions(result) != []
        )


def test_a_redirect_comes_before_questions_of_access():
    """nginx looks at `return` first, and then asks who has access; a condition of the server comes before."""
    guards = "auth_basic s; auth_basic_user_file u; allow 10.0.0.0/8; deny all; limit_req zone=no;"
    result = imported(
        site("if ($http_x_a = b) { return 403; }", f"location = /a {{ {guards} return 301 /b; }}")
    )
    ((route),) = result.sites[0]["routes"]
    assert route == {"path": "=/a", "redirect": "/b", "access": {"refuse": {"header:x-a": ["b"]}}}


@cases(
    "directives, expected, asked",
    ("if ($request_method = PURGE) { return 403; }", CLOSED, 1),
    ("limit_except get Post { deny all; }", {"require": {"method": ["~^(?:GET|HEAD|POST)$"]}}, 0),
    ("auth_basic $realm; auth_basic_user_file u;", {"basic": "u"}, 1),
    # Of two lists that are required one closes.
    ("limit_except GET { deny all; } if ($request_method !~ P) { return 405; }", CLOSED | READING, 1),
    # The innermost `satisfy` counts.
    ("USERS; satisfy any; deny 10.0.0.1; location / { satisfy all; TO; }", BOTH, 0),
)
def test_guards_in_odd_forms_are_written_or_closed(directives, expected, asked):
    result = imported(site(directives, "" if "location" in directives else "location / { TO; }"))
    assert (access(result, b"/x"), len(questions(result))) == (expected, asked)


def test_fields_that_a_block_gives_values_to_are_no_clients():
    guard = site("if ($http_x_key = k) { return 403; }")
    assert access(imported("geoip2 a { $http_x_key country iso_code; }" + guard), b"/x") == CLOSED


@cases(
    "rows, expected",
    ("default 0; ~*bot 1; a.b 1;", {"refuse": {"header:user-agent": ["~(?i)bot", r"~(?i)^a\.b$"]}}),
    ("~curl 1;", {"refuse": {"header:user-agent": ["~curl"]}}),
    ("default 1; good 0;", {"require": {"header:user-agent": ["~(?i)^good$"]}}),
    ("default 0; good 0; ~o 1;", CLOSED),
    ("default $x; ~o 1;", CLOSED),
    ("include bots.map;", CLOSED),
)
def test_a_map_of_a_field_is_a_condition(rows, expected):
    bots = f"map $http_user_agent $bad {{ {rows} }}"
    assert access(imported(bots + site("if ($bad) { return 403; }")), b"/x") == expected
    assert access(imported(bots * 2 + site("if ($bad) { return 403; }")), b"/x") == CLOSED


@cases(
    "directive",
    *("auth_request /check;", "auth_jwt closed;", "auth_basic Staff;"),
    "auth_basic Staff; auth_basic_user_file $users;",
    "deny unix:;",
    "deny $bad;",
    "limit_except GET { allow 10.0.0.0/8; deny all; }",
    "ssl_verify_client on;",
    "access_by_lua_block { ngx.exit(403) }",
    "if ($arg_key != k) { return 403; }",
    "if ($http_host = k) { return 403; }",
    "set $http_x_key k; if ($http_x_key = k) { return 403; }",
    "set $HTTP_X_KEY k; if ($http_x_key = k) { return 403; }",
    "if ($http_x_key = k) { return 403; } location ~ /q/(?<http_x_key>.*) { return 404; }",
    "if ($http_x_key ~ '(?P<http_x_key>k)') { return 403; }",
    "if ($host = en.example) { return 302 https://b.example$request_uri; }",
    "if ($host = www.en.example) { return 302 https://$server_name$request_uri; }",
    "if ($host = en.example) { return 302 https://$host:8443$request_uri; }",
    "if ($http_host != k) { return 302 https://k$request_uri; }",
    "if ($http_host != en.example) { return 302 https://en.example$request_uri; }",
    "if ($http_x_key = $arg_key) { return 403; }",
    "if ($http_x_key ~ (?=k)) { return 403; }",
    "valid_referers none a.example; if ($invalid_referer) { return 403; }",
    "valid_referers none blocked server_names; if ($invalid_referer) { return 403; }",
    "set $args role=guest;",
    "if ($arg_key) { set $args role=guest; }",
    "if ($arg_key = '') { return 302 /login; }",
    "if ($bad) { rewrite ^ /denied last; }",
    *("rewrite ^ /blocked last;", "limit_conn zone 1;", "limit_req zone=nobody;"),
    *("proxy_pass_request_headers off;", "some_guard_of_a_module on;", "include auth.conf;"),
)
def test_a_guard_without_an_equal_closes_the_route(directive):
    inside = f"location /a/ {{ {directive} proxy_pass http://127.0.0.1:2; }}"
    result = imported(site("", inside + "location / { TO; }"))
    assert access(result, b"/a/x") == access(result, b"/a") == CLOSED
    assert access(result, b"/b") == {}
    assert any(note.is_open_question for note in result.notes)
    assert access(imported(site(directive)), b"/x") == CLOSED


def test_an_expression_closes_all_below_the_path_of_another_location():
    inside = "location ~* ^/a(?=/) { } location /a/b { proxy_pass http://127.0.0.1:2; }"
    result = imported(site("", f"{inside} location / {{ TO; }}"))
    assert access(result, b"/a/b/c")["deny"] == access(result, b"/x")["deny"] == CLOSED["deny"]


@cases(
    "directive",
    *("auth_request off;", "ssl_verify_client optional;", "include proxy_params;"),
    "include /etc/nginx/mime.types;",
    "if ($scheme = http) { return 301 https://$host$request_uri; }",
    "if ($a) { set $b c; }",
    "satisfy all;",
)
def test_directives_that_guard_nothing_close_nothing(directive):
    result = imported(site(directive))
    assert access(result, b"/x") == {}
    assert not any(note.is_open_question for note in result.notes)


@cases(
    "directive, is_asked",
    ("proxy_cookie_flags ~ secure httponly;", True),
    ("proxy_cookie_flags off;", False),
    ("ssl_protocols TLSv1.3;", True),
    ("ssl_protocols TLSv1.2 TLSv1.3;", False),
)
def test_safer_cookies_and_tls_are_open_questions(directive, is_asked):
    result = imported(site(directive))
    assert access(result, b"/x") == {}
    assert any(note.is_open_question for note in result.notes) is is_asked


@cases(
    "location, closed, open_",
    ("location = /status { deny all; }", [b"/status"], [b"/", b"/statusx"]),
    ("location = /50x.html { internal; root /srv; }", [b"/50x.html"], [b"/"]),
    ("location ~ ^/hidden/.*[.]php$ { deny all; }", [b"/hidden/a.php"], [b"/a.php", b"/hidden/a"]),
    ("location ~* ^/hidden/ { deny all; }", [b"/HIDDEN/a", b"/hidden/a"], [b"/"]),
    ("location ~ /\\.(?!well-known\\/).* { deny all; }", [b"/.env", b"/a/.w"], [b"/.well-known/a", b"/a"]),
    ("location ~ ^/hidden/(?!a)b { deny all; }", [b"/hidden/b", b"/hidden/a"], [b"/"]),
    ("location ~ ^/priv/(?=x)|^/secret/ { deny all; }", [b"/priv/x", b"/secret/x"], [b"/"]),
    ("location ~ (?=x) { deny all; }", [b"/x", b"/"], []),
    (r"location ~ '^/bs\\\\' { deny all; }", [b"/bs%5C", b"/bs%5Cx"], [b"/", b"/x", b"/bs"]),
    (r"location ~ (\\|<|>) { deny all; }", [b"/a%7C%3C", b"/a%3Ex"], [b"/x", b"/a%5Cx"]),
    (r"location ~ '^/bs/\W{2}x' { deny all; }", [b"/bs/%5C%5Cx", b"/bs/-%5Cx"], [b"/bs/%5Cx"]),
    ("location ~ '^/bs/.{3}$' { deny all; }", [b"/bs/%5C%5Cx", b"/bs/%25xx"], [b"/bs/xxxx"]),
    ("location ~ '^/bs/[%]5c' { deny all; }", [b"/bs/%255c"], [b"/bs/x"]),
    ("location ~ '^/[é]' { deny all; }", [b"/%C3%A9", b"/%A9"], []),
    ("location ~ '^/bs/.41' { deny all; }", [b"/bs/%2541", b"/bs/%5C41"], [b"/bs/41"]),
    (r"location ~ '^/bs/[\\\\]x' { deny all; TO; }", [b"/bs/%5Cx"], [b"/x"]),
    (r"location ~ '^/bs/\x5c' { deny all; TO; }", [b"/bs/%5Cx"], [b"/x"]),
    ("location ~ '^/bs/[A-z]/' { deny all; TO; }", [b"/bs/%5C/"], [b"/x"]),
    ("location ~ '^/bs/[^a-zA-Z0-9/_.%-]' { deny all; TO; }", [b"/bs/%5Cy"], [b"/bs/x%5Cy"]),
    ("location ~ '^/bs/[]A-z]x' { deny all; TO; }", [b"/bs/%5Cx"], [b"/x"]),
    (r"location ~ '^/bs/[\x5b-\x5d]' { deny all; TO; }", [b"/bs/%5C"], [b"/x"]),
    ("location ~ '^/bs/[^/]+/x' { deny all; TO; }", [b"/bs/%5C/x"], [b"/bs/%5C"]),
    ("location ~ '^/bs/[A-Za-z0-9-]/' { deny all; TO; }", [b"/bs/a/"], [b"/bs/%5C/"]),
    ("location ~ '^/pc/%41' { deny all; TO; }", [b"/pc/%2541"], [b"/x"]),
    ("location ~ '^/old/(?=x)' { return 301 /new; }", [b"/old/x"], [b"/new"]),
    (r"rewrite '^/in/\\\\' /no; location ^~ /in/ { TO; }", [b"/in/%5C"], [b"/"]),
    ("location /in/ { if ($http_b) { break; } rewrite ^/in/(.*)$ /q/$1 break; TO; }", [b"/in/x"], [b"/"]),
    ("location ~ /[.]ht { deny all; }", [b"/.htaccess", b"/a/.ht"], [b"/a/"]),
    ("location /a/ { proxy_pass http://b; location ~ x { return 404; } }", [b"/a/x"], [b"/", b"/a/"]),
    ("location /a/ { TO; location ~ \\.php$ { return 404; } }", [b"/a/b/x.php"], [b"/x.php", b"/a/"]),
    ("location /a/ { TO; location ~ (x|y) { TO; } }", [b"/a/x", b"/a/"], [b"/x", b"/"]),
    ("location /a/ { TO; location ~ x { deny all; TO; } }", [b"/a/x"], [b"/x", b"/a/"]),
    ("location /a/ { TO; location ~ ^/a/x { TO; } }", [], [b"/x", b"/a/x"]),
    ("location ~ x { location /y/ { TO; } deny all; }", [b"/y/x", b"/y/"], [b"/"]),
    ("location ~ x { location ~ y { TO; } deny all; }", [b"/xy"], [b"/"]),
    ("location /x/ { internal; error_page 418 = @b; return 418; } location @b { TO; }", [b"/x/a"], [b"/"]),
    ("location /x/ { error_page 418 = @b; return 403; return 418; } location @b { TO; }", [b"/x/a"], [b"/"]),
    ("location /x/ { deny all; TRY; } location @b { allow all; TO; }", [b"/x/a"], [b"/"]),
    ("location /x/ { satisfy any; TRY; } location @b { deny all; TO; }", [b"/x/a"], [b"/"]),
    (
        "error_page 418 = @b; location /x/ { return 418; try_files $uri @c; }"
        "location @b { deny all; TO; } location @c { TO; }",
        [b"/x/a"],
        [b"/"],
    ),
    ("error_page 418 = @b; location /x/ { break; return 418; } location @b { TO; }", [b"/x/a"], [b"/"]),
    ("deny all; location /x { location ~* [.]?jpg$ { allow all; TO; } }", [b"/X/a.jpg", b"/x/a.jpg"], []),
    ("deny all; location /x { location ~* \\.jpg$ { allow all; TO; } }", [b"/X/a.jpg"], [b"/x/a.jpg"]),
    ("deny all; location /x { location ~* ^/x/y { allow all; TO; } }", [b"/X/y", b"/x/y"], []),
    ("deny all; location /x { location ~ \\.?a { allow all; TO; } }", [b"/xa"], []),
    ("location = / { deny all; }", [b"/"], [b"/a"]),
    ("rewrite ^/old/ /new permanent;", [b"/old/x"], [b"/"]),
    ("rewrite ^/in/(?!a). /no last; location ^~ /in/ { TO; }", [b"/in/x"], [b"/"]),
    ("rewrite ^/in/x(?=y) /no last; location ^~ /in/ { TO; }", [b"/in/xy"], [b"/in/a"]),
    ("rewrite (?<!a)b /no last; location ^~ /in/ { TO; }", [b"/in/b", b"/b"], []),
    ("rewrite (?!^/b)^/a /no; location ^~ /in/ { location ^~ /in/b { TO; } }", [b"/in/b/x"], []),
    ("rewrite '^/a b' /no last; location = '/a b' { TO; }", [b"/a%20b"], [b"/"]),
    ("location ~ x { location /y/ { auth_request /a; } auth_request /b; }", [b"/x", b"/y/"], []),
    ("location /private/ { root /srv; }", [b"/private/x"], [b"/", b"/private"]),
    ("location /v/ { proxy_pass http://$backend; }", [b"/v/"], [b"/"]),
    ("location /v/ { proxy_pass http://a/%2e/; deny all; }", [b"/v/"], [b"/"]),
    ("location /old/ { set $x y; return 301 /new/; }", [b"/old/x"], [b"/new/"]),
    ("location @login { auth_request /a; proxy_pass http://b; }", [], [b"/"]),
    ("location /a { proxy_pass http://b; } location = /a { deny all; }", [b"/a"], [b"/"]),
    ("location ~ '' { deny all; }", [b"/", b"/a"], []),
    ("location '' { deny all; }", [], [b"/a"]),
    ("location /a/ { TO; location /a/ { deny all; TO; } }", [b"/a/", b"/a/x"], [b"/"]),
    ("location /a { TO; location ^~ /a { location /a { internal; } } }", [b"/a", b"/ax"], [b"/"]),
    ("location /caf\udce9/ { deny all; TO; }", [b"/caf%E9/x"], [b"/caf%E8/x"]),
    ("location ~ /caf\udce9/ { deny all; TO; }", [b"/caf%E9/x"], []),
    ("location /a/ { TO; location ~ /\\.ht { deny all; } }", [b"/a/.ht", b"/a/b/.ht"], [b"/.ht", b"/a/b"]),
    ("location //a/ { deny all; TO; }", [], [b"/a/"]),
)
def test_an_import_opens_no_path_that_was_closed(location, closed, open_):
    for order in (f"{location} location / {{ TO; }}", f"location / {{ TO; }} {location}"):
        result = imported(site("", order))
        assert [path for path in closed if CLOSED not in accesses(result, path)] == []
        assert [path for path in open_ if access(result, path) == CLOSED] == []


@cases(
    "locations, path",
    ("location /o/ { TO; location /o/adm/pub/ { TO; } } location /o/adm/ { MOVED }", b"/o/adm/pub/1"),
    ("location /o/ { TO; location = /o/adm/q { TO; } } location /o/adm/ { MOVED }", b"/o/adm/q"),
    ("location ~ [.]php$ { TO; } location /adm/ { TO; location ~ \\.php$ { MOVED } }", b"/adm/x.php"),
    ("location ^~ /a/ { TO; location ~ \\.php$ { MOVED } }", b"/a/x.php"),
    ("location ^~ /a/ { TO; location ~ \\.php$ { root /x; } }", b"/a/x.php"),
    ("location /a/ { TO; location ~ \\.css$ { TO; } } location /a/b/ { MOVED }", b"/a/b/x.css"),
    ("location /a/ { TO; location ^~ /a/b/ { TO; } } location ~ \\.old$ { MOVED }", b"/a/b/x.old"),
    ("location ^~ /t { try_files $uri =404; } location ~ [.]css$ { TO; }", b"/t.css"),
    ("location ^~ /s { TO; location /s/a { root /n; } } location ~ [.]css$ { TO; }", b"/s/ab.css"),
    ("location ^~ / { root /n; } location ~ [.]css$ { TO; } location /a/ { TO; }", b"/x.css"),
    ("location ^~ / { MOVED } location ~ [.]css$ { TO; } location /a/ { TO; }", b"/x.css"),
)
def test_a_location_within_another_is_asked_where_nginx_does(locations, path):
    """nginx forwards none of these paths."""
    text = locations.replace("MOVED", "return 302 /login;")
    root = "" if "^~ / " in text else "location / { TO; }"
    result = imported(site("", f"{text} {root}"))
    own, routes = found_by(result, path)
    closes = [each for each in routes if each is not None and each.access.deny == CLOSED["deny"]]
    upstream = routes[0].upstream or own.upstream
    assert closes or routes[0].redirect or upstream.servers[0].url == NOWHERE


@cases(
    "named, is_said",
    ("TO;", False),
    ("internal; TO;", False),
    ("rewrite ^/x /y break; TO;", True),
    ("if ($http_x_a) { return 302 /l; } TO;", True),
)
def test_directives_that_close_a_named_location_are_questions(named, is_said):
    result = imported(site("", f"location / {{ try_files /none @a; }} location @a {{ {named} }}"))
    assert bool(questions(result)) is is_said
    assert (access(result, b"/x") == {}) is not is_said


def test_a_route_asks_for_nothing_that_its_location_lifts():
    result = imported(
        site(
            "USERS; deny 10.0.0.1; gzip on; add_header X-A b;",
            "location / { TO; }"
            "location /open/ { auth_basic off; allow all; gzip off; add_header X-B c; proxy_pass http://b; }",
        )
    )
    assert access(result, b"/x") == {"deny": ["10.0.0.1/32"], "basic": "users"}
    assert access(result, b"/open/x") == {}
    (written,) = result.sites
    opened = next(route for route in written["routes"] if route["path"] == "/open/")
    assert opened["response"] == {"set": {"X-B": "c"}}
    assert opened["cache"] == {"bypass": ["*"]}


def test_a_closed_server_stays_closed_beside_one_for_all_hosts():
    closed = "server { server_name private.example; return 403; }"
    everyone = "server { server_name _; location / { TO; } }"
    assert access(imported(everyone + closed), b"/", b"private.example") == CLOSED
    assert access(imported(everyone + closed), b"/", b"other.example") == {}
    # The first server has the hosts that nobody names.
    assert access(imported(closed + everyone), b"/", b"other.example") in (None, CLOSED)
    moved = "server { server_name www.example; return 301 https://en.example$request_uri; }"
    assert access(imported(everyone + moved), b"/", b"www.example") == CLOSED
    assert len(imported(closed + site("")).sites) == 1


def questions(result):
    return [note.text for note in result.notes if note.is_open_question]


@cases(
    "locations, path, expected, is_open",
    # A refusal that nginx never reaches refuses nothing; one that it reaches for some requests is a question.
    ("location /a/ { break; return 403; TO; }", b"/a/", {}, False),
    ("location /a/ { return 403; if ($http_x_a) { return 200; } TO; }", b"/a/", CLOSED, False),
    ("location /a/ { IF { break; } return 403; TO; }", b"/a/", CLOSED, True),
    ("location /a/ { IF { break; } return 403; }", b"/a/", CLOSED, True),
    ("location /a/ { IF { break; } deny all; }", b"/a/", CLOSED, False),
    ("location /a/ { rewrite ^/a/(.*)$ /$1 break; return 403; TO; }", b"/a/", CLOSED, True),
    ("location /a/ { IF { break; } if ($cookie_b) { return 403; } TO; }", b"/a/", OF_B, True),
    ("location /a/ { IF { break; return 403; } TO; }", b"/a/", {}, False),
    ("location ~ [.]x$ { deny all; } location ~ [.]x$ { TO; }", b"/a.x", CLOSED, False),
    ("location ~ [.]x$ { TO; } location ~ [.]x$ { deny all; }", b"/a.x", {}, False),
    # A location inherits access rules from the one around it, and nothing that the other does.
    ("location /a/ { return 403; location /a/b/ { TO; } }", b"/a/b/", {}, False),
    ("location /a/ { IF { return 403; } TO; location /a/b/ { TO; } }", b"/a/b/", {}, False),
    ("location /a/ { limit_except GET { deny all; } TO; location /a/b/ { TO; } }", b"/a/b/", {}, False),
    ("location /a/ { deny all; location /a/b/ { TO; } }", b"/a/b/", CLOSED, False),
    ("location /a/ { internal; location /a/b/ { TO; } }", b"/a/b/", CLOSED, False),
    # An `if` takes its requests away from try_files.
    ("location /a/ { IF { set $y 1; } TRY; }", b"/a/", OF_A, False),
    ("location /a/ { if (-f $uri) { set $y 1; } TRY; }", b"/a/", CLOSED, True),
    ("location /a/ { IF { set $y 1; } TO; }", b"/a/", {}, False),
    # If more is closed than an expression matches, somebody has to decide.
    ("location ~ ^/a/(?=x) { return 403; }", b"/a/y", CLOSED, True),
    ("location ~ ^/a/(x++) { deny all; TO; }", b"/a/y", CLOSED, True),
    ("location /a/ { deny all; satisfy any; USERS; root /srv; }", b"/a/", CLOSED, True),
    ("location /a/ { deny all; error_page 403 = @b; TRY; }", b"/a/", CLOSED, True),
)
def test_access_rules_follow_nginx_and_doubtful_ones_are_questions(locations, path, expected, is_open):
    result = imported(site("", f"{locations} location @b {{ TO; }} location / {{ TO; }}"))
    assert access(result, path) == expected
    assert bool(questions(result)) is is_open, questions(result)


@cases(
    "guard, rules",
    ("deny all;", CLOSED),
    ("return 404;", CLOSED),
    ("auth_request /a;", CLOSED),
    ("allow 10.0.0.0/8; deny all;", {"allow": ["10.0.0.0/8"]}),
    ("USERS;", {"basic": "users"}),
)
@pytest.mark.parametrize("order", ["{root} {admin}", "{admin} {root}"])
def test_a_guarded_prefix_of_bytes_stays_guarded(guard, rules, order):
    """nginx's location /admin is that of /adminx and /admin.php, too."""
    admin = "location /api/admin { GUARD proxy_pass http://a; }".replace("GUARD", guard)
    text = order.format(root="location / { proxy_pass http://a; }", admin=admin)
    result = imported(site("", text))
    for path in (b"/api/admin", b"/api/admin/x", b"/api/adminx", b"/api/admin.php", b"/api/%61dmin-x/y"):
        assert access(result, path) == rules, path
    for path in (b"/", b"/api/", b"/api/admi", b"/api/x", b"/admin"):
        assert access(result, path) == {}, path


SERVED_BY_NGINX = (b"/private", b"/privately", b"/f", b"/f.zip")


@cases(
    "locations, expected",
    # A location that forwards nothing is closed by bytes.
    ("location /private { internal; } location /f { root /a; }", dict.fromkeys(SERVED_BY_NGINX, CLOSED)),
    # Beside a guarded prefix that is replaced all is closed.
    ("location /adm { USERS; proxy_pass http://a/x; }", {b"/adm/y": {"basic": "users"}, b"/admy": CLOSED}),
    # A longer location opens what a guarded one begins.
    ("location /a { deny all; TO; } location /ab/ { TO; }", {b"/ab/x": {}, b"/a/x": CLOSED, b"/ac": CLOSED}),
    # Paths around other prefixes stay open.
    ("location /api/admin { proxy_pass http://b; }", {b"/api/x": {}}),
    ("location /api/old { return 301 /new; }", {b"/api/x": {}}),
    ("location /api/files { root /srv; }", {b"/api/x": {}}),
    ("location /api/ { TO; } location /api/admin { deny all; proxy_pass http://b; }", {b"/api/x": {}}),
)
def test_a_location_guards_its_own_paths_alone(locations, expected):
    result = imported(site("", f"location / {{ TO; }} {locations}"))
    assert {path: access(result, path) for path in (b"/", *expected)} == {b"/": {}} | expected


@pytest.mark.parametrize("inner", ["allow all; TO;", "allow 10.0.0.0/8; TO;", "TO;", "TO/x;"])
@pytest.mark.parametrize("path", ["/pub*", "^~ /pub*", "/pub**", "/pub/*"])
def test_a_star_in_a_location_opens_nothing(path, inner):
    """In nginx it is a sign like others, and in a route's path it stands for any bytes."""
    text = f"location / {{ deny all; TO; }} location {path} {{ {inner} }}"
    result = imported(site("", text.replace("TO", "proxy_pass http://a")))
    for target in (b"/", b"/pub", b"/pubx", b"/pub/x"):
        assert access(result, target) == CLOSED, target


@pytest.mark.parametrize("path", ["/admin*", "= /admin*", "/admin/*", "= /admin/*"])
def test_a_guard_with_a_star_stays(path):
    text = f"location / {{ TO; }} location {path} {{ deny all; TO; }}"
    result = imported(site("", text.replace("TO", "proxy_pass http://a")))
    assert access(result, path.removeprefix("= ").encode()) == CLOSED
    assert access(result, b"/") == access(result, b"/adm") == {}


def test_a_guard_of_bytes_is_no_open_question():
    text = "location / { TO; } location /admin { allow 10.0.0.0/8; deny all; TO; }"
    result = imported(site("", text.replace("TO", "proxy_pass http://a")))
    assert questions(result) == []
    assert access(result, b"/adminx") == {"allow": ["10.0.0.0/8"]}


@pytest.mark.parametrize("inside", ["~ [.]php$", "/x/y/", "= /x/y"])
def test_nested_locations_that_nginx_answers_itself_are_closed(inside):
    outer = f"location ~ /x/ {{ location {inside} {{ root /srv; }} TO; }}"
    (written,) = imported(site("", outer)).sites
    path = inside.replace("~ ", "~").replace("= ", "=")
    assert [each["access"] for each in written["routes"] if each["path"] == path] == [CLOSED]


def test_a_prefix_within_one_before_expressions_is_before_them():
    final = "location ^~ /a/ { location /a/b/ { proxy_pass http://b; } TO; }"
    (written,) = imported(site("", f"{final} location ~ [.]png$ {{ proxy_pass http://c; }}")).sites
    assert {each["path"] for each in written["routes"] if each.get("final")} == {"/a/", "/a/b/"}


def test_every_listed_field_is_a_whole_name():
    assert {"access-control-allow-methods", "clear-site-data", "proxy-status", "x-robots-tag"} <= LISTED
    assert [
        name for name in LISTED if name.endswith("-") or name in {"methods", "data", "tag", "status"}
    ] == []


def test_guards_around_a_redirect_by_expression_are_said():
    redirect = "location ~ [.]old$ { return 301 /new; }"
    result = imported(site("", f"{redirect} location / {{ deny 10.0.0.1; TO; }}"))
    text = "location /: its guards hold for what expressions match below it, too; not so in nginx"
    assert text in [note.text for note in result.notes]


@cases(
    "inside, expected",
    ("root /srv;", {}),
    ("set $x y; return 301 /x;", {}),
    ("try_files $uri $uri/ =404;", {}),
    ("deny all; root /srv;", CLOSED),
    ("return 403;", CLOSED),
    ("internal; root /srv;", CLOSED),
    ("auth_request /a; root /srv;", CLOSED),
    ("limit_req zone=x; root /srv;", CLOSED),
    ("rewrite ^ /x last; root /srv;", CLOSED),
)
@pytest.mark.parametrize("modifier", ["", "^~"])
def test_a_location_that_nginx_answers_closes_no_expression_beside_it(modifier, inside, expected):
    expression = "location ~ [.]php$ { TO; }"
    result = imported(site("", f"location {modifier} /a {{ {inside} }} {expression}"))
    closed = [route for route in result.sites[0]["routes"] if route["path"] in {"/a", "/a*"}]
    assert len(closed) == 2
    for route in closed:
        assert route.get("access", {}) == expected
        assert route.get("upstream", NOWHERE) == NOWHERE
    assert questions(result) or expected == CLOSED


def test_a_guarded_server_without_a_host_is_an_open_question():
    everyone = "server { server_name _; location / { TO; } }"
    text = "server { server_name ~^admin(?=[.]); {} }"  # RE2 has no equal
    lost = "server_name ~^admin(?=[.]): no site has these hosts: those that nobody names are refused"
    for inside in (
        "deny all; location / { proxy_pass http://127.0.0.1:2; }",
        "return 403;",
        "location / { proxy_pass http://127.0.0.1:2; location /a/ { internal; } }",
    ):
        guarded = text.replace("{}", inside)
        result = imported(everyone + guarded)
        assert lost in questions(result)
        assert result.sites == []
        # An expression that RE2 has is a host of the site that refuses.
        result = imported(everyone + guarded.replace("(?=[.])", "[.]"))
        assert [site["hosts"] for site in result.sites if "~^admin[.]" in site["hosts"] or "access" in site]
        assert result.sites[0]["hosts"] == (["~^admin[.]"] if inside == "return 403;" else ["*"])


@cases(
    "others, hosts",
    ("", [["adm.*"]]),
    ("server { server_name adm.*; deny all; }", [["adm.*"]]),  # the first server of a name has it
    ("server { server_name a.example; location / { TO; } }", [["adm.*"], ["a.example"]]),
    ("server { server_name ~^adm; location / { TO; } }", [["adm.*"], ["~^adm"]]),
    ("server { listen 81; server_name adm.*; location / { TO; } }", [["adm.*"]]),  # at a socket of its own
    ("server { server_name ~^adm(?=x); location / { TO; } }", [["adm.*"]]),
)
def test_a_default_server_with_a_pattern_serves_every_host(others, hosts):
    result = imported(f"server {{ server_name adm.*; location / {{ TO; }} }} {others}")
    assert [site["hosts"] for site in result.sites] == hosts
    assert result.sites[0].get("default", False) is ("(?=" not in others)


def test_either_of_two_rules_is_closed_beside_them():
    rules = "allow 10.0.0.0/8; deny all; auth_basic a; auth_basic_user_file users;"
    for any_of in ("satisfy any;", "auth_request /a;"):
        result = imported(site(f"{any_of} {rules}"))
        assert access(result, b"/x") == {"allow": ["10.0.0.0/8"], "basic": "users", **CLOSED}
        assert questions(result)
    denied = access(imported(site("deny 10.0.0.1; auth_request /a;")), b"/x")
    assert not admits(denied, "10.0.0.2")
    # The file's own rule is there once that of nobody is taken away.
    denied["deny"] = []
    assert admits(denied, "10.0.0.2")
    assert not admits(denied, "10.0.0.1")


NETWORKS = "all 10.0.0.0/8 10.1.0.0/16 10.1.0.1 10.1.0.2/31 0.0.0.0/1 ::/0 2001:db8::/32 ::1"
RULES = st.lists(st.tuples(st.sampled_from(["allow", "deny"]), st.sampled_from(NETWORKS.split())), max_size=6)
ADDRESSES = "10.0.0.1 10.1.0.1 10.1.0.2 10.1.0.4 11.0.0.1 192.0.2.1 ::1 2001:db8::1 2001:db9::1"


def first_match(rules, address):
    """nginx's own decision: the first rule that matches counts, and without one there is access."""
    for verb, net in rules:
        if net == "all" or ipaddress.ip_address(address) in ipaddress.ip_network(net):
            return verb == "allow"
    return True


@given(RULES, st.sampled_from(ADDRESSES.split()))
def test_networks_have_access_as_in_nginx(rules, address):
    table = access(imported(site("".join(f"{verb} {net};" for verb, net in rules))), b"/")
    assert admits(table, address) == first_match(rules, address)


# OwnRates, fields, compression.


@cases(
    "zone, limit, rate",
    ("$binary_remote_addr zone=one:10m rate=10r/s", "zone=one burst=20 nodelay", "10/s burst 21"),
    ("$remote_addr zone=one:10m rate=30r/m", "zone=one", "30/m burst 1"),
    ("$server_name zone=one:10m rate=10r/s", "zone=one", None),
    ("$binary_remote_addr zone=two:10m rate=10r/s", "zone=one", None),
)
def test_a_limit_of_requests_is_a_rate(zone, limit, rate):
    result = imported(f"limit_req_zone {zone}; " + site(f"limit_req {limit};"))
    assert access(result, b"/").get("rate") == rate
    assert any("[sites.access] rate" in note.text for note in result.notes) is (rate is None)


@cases(
    "directives, expected",
    ("proxy_set_header X-Tenant en;", {"request": {"set": {"X-Tenant": "en"}}}),
    ('proxy_set_header X-User "";', {"request": {"remove": ["X-User"]}}),
    ("proxy_set_header X-User $ssl_client_s_dn;", {"request": {"remove": ["X-User"]}}),
    ("proxy_set_header X-User $remote_user;", {"request": {"set": {"X-User": "{user}"}}}),
    ("proxy_set_header X-Real-IP $remote_addr;", {"request": {"set": {"X-Real-IP": "{client}"}}}),
    (
        'proxy_set_header X-Url "$scheme://${host}/{a}";',
        {"request": {"set": {"X-Url": "{scheme}://{host}/{{a}}"}}},
    ),
    ('proxy_set_header X-Text "{client} {";', {"request": {"set": {"X-Text": "{{client}} {{"}}}),
    ("proxy_set_header X-Other $remote_addr_x;", {"request": {"remove": ["X-Other"]}}),
    ("add_header X-Id $request_id always;", {"response": {"set": {"X-Id": "{request_id}"}}}),
    ("proxy_set_header X-User $http_x_user;", {}),
    ("proxy_set_header X-User $http_x_user; set $http_x_user ann;", {"request": {"remove": ["X-User"]}}),
    ("proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;", {}),
    ("proxy_set_header Connection $connection_upgrade;", {}),
    ("add_header X-Frame-Options DENY always;", {"response": {"set": {"X-Frame-Options": "DENY"}}}),
    ("add_header X-Cache $upstream_cache_status;", {}),
    ("proxy_hide_header X-Powered-By;", {"response": {"remove": ["X-Powered-By"]}}),
    ("add_header X-A b; proxy_hide_header x-a;", {"response": {"set": {"X-A": "b"}}}),
    ("HIDE add_header Cache-Control $x;", {"response": {"set": {"Cache-Control": "private"}}}),
    (
        "HIDE add_header Cache-Control public; add_header Cache-Control $x;",
        {"response": {"set": {"Cache-Control": "public, private"}}},
    ),
    ("gzip on; brotli on;", {"cache": {"compress": ["br", "gzip"]}}),
    ("gzip off;", {}),
)
def test_fields_and_compression_are_written(directives, expected):
    (written,) = imported(site(directives.replace("HIDE", "proxy_hide_header Cache-Control;"))).sites
    tables = {key: written[key] for key in ("request", "response") if key in written}
    compress = written["cache"].get("compress")
    assert tables | ({"cache": {"compress": compress}} if compress else {}) == expected
    assert "routes" not in written


def test_a_location_with_fields_of_its_own_inherits_none():
    inside = "location / { proxy_pass http://a; }"
    inside += "location /b/ { proxy_set_header X-Other c; proxy_pass http://b; }"
    (written,) = imported(site("proxy_set_header X-Tenant en;", inside)).sites
    assert "request" not in written
    assert [route["request"] for route in written["routes"] if "redirect" not in route] == [
        {"set": {"X-Tenant": "en"}},
        {"set": {"X-Other": "c"}},
    ]


ASKING = "location = /auth { internal; proxy_pass http://127.0.0.1:2%s; %s }"


@cases(
    "location, url",
    (ASKING % ("", "proxy_pass_request_body off; proxy_set_header Content-Length '';"), "/auth"),
    (ASKING % ("/verify", "proxy_set_header X-Original-URI $request_uri;"), "/verify"),
    (
        ASKING % ("/verify", "proxy_set_header Host $proxy_host; proxy_set_header Cookie $http_cookie;"),
        "/verify",
    ),
    (ASKING % ("/verify", "proxy_set_header Host 127.0.0.1:2; proxy_read_timeout 3s;"), "/verify"),
    (ASKING % ("/verify", "proxy_set_header Host $host;"), ""),
    (ASKING % ("/verify", "proxy_set_header Cookie '';"), ""),
    (ASKING % ("/verify", "proxy_set_header X-Secret a;"), ""),
    (ASKING % ("/verify", "proxy_set_header X-Original-URI $uri;"), ""),
    (ASKING % ("/verify", "allow 10.0.0.1;"), ""),
    (ASKING % ("/verify", "rewrite ^ /x;"), ""),
    (ASKING % ("/verify?a=$args", ""), ""),
    (ASKING.replace("proxy_pass http://127.0.0.1:2%s", "return 200%s") % ("", ""), ""),
    (ASKING.replace("= /auth", "/auth") % ("", ""), ""),
    ("", ""),
)
def test_auth_request_is_forward_authentication_or_closes(location, url):
    guards = "auth_request /auth; auth_request_set $who $upstream_http_x_user;"
    result = imported(
        site(f"{location} {guards} proxy_set_header X-User $who; proxy_set_header X-Other $who;")
    )
    given = {"forward": f"http://127.0.0.1:2{url}", "forward_fields": ["X-User"]}
    assert access(result, b"/x") == (given if url else {"deny": ["0.0.0.0/0", "::/0"]})
    assert any(each.is_open_question for each in result.notes) == (not url)
    assert access(result, b"/auth")["deny"] == ["0.0.0.0/0", "::/0"]


@cases(
    "inside, is_one",
    ("limit_req zone=z;", True),
    ("limit_req zone=z; location /a/ { limit_req zone=z burst=5; }", False),
)
def test_a_zone_that_univocal_counts_apart_is_an_open_question(inside, is_one):
    zone = "limit_req_zone $binary_remote_addr zone=z:1m rate=1r/s;"
    one = site(inside)
    other = one.replace("en.example", "de.example")
    assert bool(questions(imported(zone + one))) is not is_one
    assert questions(imported(zone + one + other))


def test_a_location_without_auth_request_asks_nobody():
    locations = "location / { proxy_pass http://b; } location /o/ { auth_request off; proxy_pass http://b; }"
    result = imported(site(f"{ASKING % ('', '')} auth_request /auth;", locations))
    assert access(result, b"/a") == {"forward": "http://127.0.0.1:2/auth"}
    assert not access(result, b"/o/").get("forward")


@cases(
    "directives, is_taken",
    ("ssl_client_certificate {ca}; ssl_verify_client on;", True),
    ("ssl_client_certificate {ca}; ssl_verify_client on; ssl_crl {ca};", False),
    ("ssl_client_certificate /none.pem; ssl_verify_client on;", False),
    ("ssl_verify_client on;", False),
)
def test_certificates_of_clients_are_asked_for_or_nothing_is_open(tmp_path, directives, is_taken):
    ca = tmp_path / "ca.pem"
    ca.write_text("")
    tls = f"listen 443 ssl; ssl_certificate {ca}; ssl_certificate_key {ca}; {directives.format(ca=ca)}"
    result = imported(site(tls))
    assert (result.sites[0].get("tls_client_ca") == str(ca)) == is_taken
    assert (access(result, b"/x") == {}) == is_taken
    assert any(each.is_open_question for each in result.notes) != is_taken
    without = imported(site(directives.format(ca=ca)))  # no TLS
    assert access(without, b"/x")["deny"] == ["0.0.0.0/0", "::/0"]


@cases(
    "directives, expected",
    ("auth_basic a; auth_basic_user_file users; limit_req zone=u burst=4;",
     {"basic": "users", "limits": {"rate": "5/s burst 5", "by": "user"}}),
    ("auth_basic a; auth_basic_user_file users; limit_req zone=u; limit_req zone=c burst=9;",
     {"basic": "users", "limits": {"rate": "5/s burst 1", "by": "user"}, "rate": "60/m burst 10"}),
    ("limit_req zone=u;", {"deny": ["0.0.0.0/0", "::/0"]}),  # nobody has a name that is verified
    ("auth_basic a; auth_basic_user_file users; limit_req zone=k;",
     {"basic": "users", "deny": ["0.0.0.0/0", "::/0"]}),
)  # fmt: skip
def test_rates_by_user_are_limits_beside_passwords(directives, expected):
    zones = (
        "limit_req_zone $remote_user zone=u:1m rate=5r/s; limit_req_zone $remote_addr zone=c:1m rate=60r/m;"
        "limit_req_zone $http_x_api_key zone=k:1m rate=5r/s;"
    )
    assert access(imported(f"http {{ {zones} {site(directives)} }}"), b"/x") == expected
