"""Whole configurations of nginx: included files, dumps, sockets, and what moves clients elsewhere."""

import pytest

from examples import cases
from univocal_learn.importers.imported import NothingImportedError, Source
from univocal_learn.importers.nginx import read

PASS = "location / { proxy_pass http://127.0.0.1:1; }"
CLOSED = ["0.0.0.0/0", "::/0"]
APP = "http://127.0.0.1:2"


# Short words of the tables' rows, for directives that many of them share.
WORDS = {
    "TO ": "proxy_pass http://b; ",
    "NAME": "server_name a.example;",
    "FROM": "set_real_ip_from 10.0.0.0/8;",
}
WORDS |= {"TRY": "try_files $uri @app;", "LED": "error_page 418 = @app; return 418;"}


def imported(text, name="nginx.conf", root=None):
    for word, directive in WORDS.items():
        text = text.replace(word, directive)
    return read(Source(name, text, None, root))


def questions(result):
    return [note for note in result.notes if note.is_open_question]


@pytest.fixture
def etc(tmp_path):
    """A directory with an nginx.conf and what it includes."""
    for name, text in {
        "nginx.conf": "http { include mime.types; include conf.d/[^x-z]*.conf; include none/*.conf; }",
        "conf.d/a.conf": f"server {{ server_name a.example; include snippets/guard.conf; {PASS} }}",
        "conf.d/b.conf": f"server {{ server_name b.example; {PASS} }}",
        "snippets/guard.conf": "\nallow 10.0.0.0/8;\ndeny all;\nunknown_guard on;",
    }.items():
        (tmp_path / "[etc]" / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / "[etc]" / name).write_text(text)
    (tmp_path / "[etc]" / "none").mkdir()
    return tmp_path / "[etc]"


@pytest.mark.parametrize("by_root", [False, True])
def test_included_files_are_read(etc, by_root):
    text = (etc / "nginx.conf").read_text()
    result = imported(text, root=etc) if by_root else imported(text, str(etc / "nginx.conf"))
    assert [site["hosts"] for site in result.sites] == [["a.example"], ["b.example"]]
    assert result.sites[0]["access"] == {"allow": ["10.0.0.0/8"], "deny": CLOSED}
    assert "access" not in result.sites[1]
    (question,) = questions(result)
    assert (question.file, question.line) == (str(etc / "snippets" / "guard.conf"), 4)


@pytest.mark.parametrize("broken", ["include a\0b/*;", "if { return 403; }", "if ( { return 403; }"])
def test_directives_that_nginx_cannot_read_deny_access(broken):
    (site,) = imported(f"server {{ location / {{ {broken} proxy_pass http://a; }} }}").sites
    guarded = [each["access"] for each in (site, *site.get("routes", ())) if "access" in each]
    assert guarded == [{"deny": CLOSED}]


@pytest.mark.parametrize("text_of_file", ["fastcgi_param A b; deny all;", "set $args role=guest;"])
@pytest.mark.parametrize("name", ["modules/guard.conf", "ssl-params.conf", "fastcgi_params", "mime.types"])
def test_a_file_of_a_known_name_is_read_for_guards(name, text_of_file, tmp_path):
    file = tmp_path / name
    file.parent.mkdir(exist_ok=True)
    file.write_text(text_of_file)
    text = f"server {{ location /a/ {{ include {name}; proxy_pass http://a; }} {PASS} }}"
    result = imported(text, str(tmp_path / "nginx.conf"))
    assert [each["access"]["deny"] for each in result.sites[0]["routes"] if "access" in each] == [CLOSED] * 2


@cases("include", "sites-enabled/*", "sites-[^a-d]nabled/[a-c]", "/etc/nginx/sites-?nabled/a")
def test_a_dump_holds_its_files(include):
    dump = (
        f"# configuration file /etc/nginx/nginx.conf:\nhttp {{ include {include}; }}\n"
        f"# configuration file /etc/nginx/sites-enabled/a:\nserver {{ server_name a.example; {PASS} }}\n"
    )
    result = imported(dump)
    assert [site["hosts"] for site in result.sites] == [["a.example"]]
    assert questions(result) == []


@cases(
    "include",
    *("/nowhere/guard.conf", "nowhere/*.conf", "nowhere.conf", "modules/x.conf", r"./\\n*.conf"),
    "[[:alpha:]]*.conf",
)
def test_an_included_file_that_is_not_here_closes(include, tmp_path):
    result = imported(
        f"server {{ include {include}; {PASS} location /b/ {{ deny 10.0.0.1; proxy_pass http://a; }} }}",
        str(tmp_path / "nginx.conf"),
    )
    assert [route["access"]["deny"] for route in result.sites[0]["routes"]] == [CLOSED] * 3
    assert questions(result)


@pytest.mark.parametrize("before", ["nginx: the test is successful\r\n", "# saved\n \n"])
def test_a_dump_may_have_comments_before_it(before):
    main = "# configuration file /etc/nginx/nginx.conf:\ninclude a.conf;\n"
    own = f"# configuration file /etc/nginx/a.conf:\nserver {{ server_name a.example; {PASS} }}"
    assert [site["hosts"] for site in imported(before + main + own).sites] == [["a.example"]]


def test_a_comment_behind_directives_begins_no_dump():
    refusing = "server { server_name b.example; return 403; }\n# configuration file /etc/nginx/a.conf:\n"
    sites = imported(f"{refusing}server {{ server_name *.example; {PASS} }}").sites
    assert [(site["hosts"], "access" in site) for site in sites] == [
        (["*.example"], False),
        (["b.example"], True),
    ]


def test_includes_alone_are_named():
    with pytest.raises(NothingImportedError, match=r"nowhere/a\.conf"):
        imported("include nowhere/a.conf;")


def test_proxy_params_send_the_clients_host():
    result = imported("server { location / { include proxy_params; proxy_pass http://127.0.0.1:1; } }")
    assert result.sites[0]["origin_host"] == "site"
    assert questions(result) == []


# Sockets.


@cases(
    "ports, listen",
    ("8081-8083", ["0.0.0.0:8081", "0.0.0.0:8082", "0.0.0.0:8083"]),
    ("[::1]:8081-8082", ["[::1]:8081", "[::1]:8082"]),
    ("1-60000", "0.0.0.0:1-60000"),  # univocal says that this is no address,
)
def test_a_range_of_ports_is_a_listener_each(ports, listen):
    result = imported(f"server {{ listen {ports}; server_name a.example; {PASS} }}")
    assert result.server["listen"] == listen


def test_a_server_of_another_socket_has_its_own_listener():
    inside = f"server {{ listen 127.0.0.1:8081; server_name in.example; {PASS} }}"
    result = imported(f"server {{ listen 80; server_name a.example; {PASS} }} {inside}")
    assert result.server["listen"] == ["0.0.0.0:80", {"address": "127.0.0.1:8081", "sites": ["in.example"]}]


@cases(
    "servers, closed",
    ("listen 8081; NAME | listen 127.0.0.1:8081; return 444;", "127.0.0.1:8081"),
    ("listen 8081; NAME | listen 127.0.0.1:8081; NAME", "127.0.0.1:8081"),
    ("listen [::]:8081; NAME | listen [::1]:8081; return 403;", "[::1]:8081"),
    ("listen 8081; NAME | listen 127.0.0.1:8082; return 403;", ""),
    ("listen 8081; NAME | listen 127.0.0.1:8081; server_name b.example;", ""),
    ("listen 127.0.0.1:8081; NAME | listen 8081; return 403;", ""),
    ("listen 8081; NAME | listen 127.0.0.1:8081; return 301 https://$host$request_uri;", "127.0.0.1:8081"),
)
def test_an_address_beside_all_has_its_own_server(servers, closed):
    """nginx gives a connection to a server of its very address, if there is one at the port."""
    result = imported("".join(f"server {{ {each} {PASS} }}" for each in servers.split(" | ")))
    refusing = [site["hosts"] for site in result.sites if "access" in site]
    assert refusing == [[each] for each in closed.split()]
    listeners = [each for each in result.server["listen"] if isinstance(each, dict)]
    assert [each["address"] for each in listeners if each["sites"] == [closed]] == closed.split()


@cases(
    "servers, hosts",  # ports and a name of each; "!" refuses. Hosts of each site
    # The default server of a port has all hosts there that no server names with it.
    ("80 a.example, 8081 a.example", "a.example, a.example:8081 *:8081"),
    ("80 a.example, 8081 _", "a.example, *:8081"),
    ("80 a.example, 8081 _!", "a.example"),
    ("80 a.example, 8081 _, 8081 b.example", "a.example, *:8081, b.example b.example:8081"),
    ("80 a.example, 8081 _, 80 8081 b.example", "a.example, *:8081, b.example b.example:8081"),
    # An expression stands with no port: other hosts of that port are refused.
    ("80 a.example, 8081 a.example, 8081 ~^b", "a.example, a.example:8081, ~^b"),
    # A server that refuses at one socket serves nothing at another.
    ("80 z.example, 80 a.example!, 8081 a.example", "z.example, a.example:8081 *:8081, a.example"),
    ("80 a.example, 443 a.example", "a.example"),  # clients leave these ports out,
)
def test_a_host_at_two_sockets_has_a_site_at_each(servers, hosts):
    text = ""
    for server in servers.split(", "):
        *ports, name = server.removesuffix("!").split()
        listens = "".join(f"listen {port}; " for port in ports)
        inside = "return 444;" if server.endswith("!") else PASS
        text += f"server {{ {listens} server_name {name}; {inside} }} "
    assert ", ".join(" ".join(site["hosts"]) for site in imported(text).sites) == hosts


@cases(
    "first, then, said",
    ("80", "443 ssl", "the host 'a.example' is line 1's, and one site's only"),
    ("81", "127.0.0.1:81", "another server has the site of its hosts: no site is written"),
    ("80", "80", None),  # nginx ignores the second,
)
def test_a_server_without_a_site_is_an_open_question(first, then, said):
    servers = (f"server {{ listen {each}; server_name a.example; {PASS} }}" for each in (first, then))
    result = imported("\n".join(servers))
    assert [note.text for note in questions(result)][-1:] == ([said] if said else [])
    assert any("no site is written" in note.text for note in result.notes)


def test_a_server_that_only_refuses_listens():
    result = imported("server { listen 8081; listen 443 ssl; server_name a.example; return 444; }")
    assert (result.sites[0]["hosts"], result.server["listen"]) == (["a.example"], "0.0.0.0:8081")


def test_the_first_server_of_a_name_has_it():
    for refusal in ("return 444;", "return 503;", "deny all;"):
        result = imported(
            f"server {{ listen 80; server_name z.example; {PASS} }}"
            f"server {{ listen 80; server_name a.example; {refusal} {PASS} }}"
            f"server {{ listen 80; server_name a.example; {PASS} }}"
        )
        sites = {site["hosts"][0]: site for site in result.sites}
        assert sites["z.example"]["default"]
        assert sites["a.example"]["access"] == {"deny": CLOSED}


def test_a_default_server_that_refuses_gives_hosts_to_nobody():
    result = imported(
        "server { listen 80 default_server; server_name _; return 444; }"
        f"server {{ listen 80; server_name a.example; {PASS} }}"
    )
    (site,) = result.sites
    assert (site["hosts"], site.get("default")) == (["a.example"], None)
    assert questions(result) == []


CERTBOT = """
server {{ server_name a.example; {} listen 443 ssl; ssl_certificate cert.pem; ssl_certificate_key key.pem; }}
server {{
    if ($host = a.example) {{ return 301 https://$host$request_uri; }}
    listen 80; server_name a.example; return 404;
}}
server {{ listen 80; server_name www.a.example *.b.example; return 301 https://a.example$request_uri; }}
server {{
    listen 80; server_name c.example; location /.well-known/acme-challenge/ {{ root /acme; }}
    location / {{ return 301 https://a.example$request_uri; }}
}}
"""


def test_certificates_redirects_and_aliases_are_written(tmp_path):
    for name in ("cert.pem", "key.pem"):
        (tmp_path / name).write_text("")
    result = imported(CERTBOT.format(PASS), str(tmp_path / "nginx.conf"))
    site, moved = result.sites
    names = ["www.a.example", "c.example"]
    assert (site["hosts"], site["aliases"], site["alias_answer"]) == (["a.example"], names, 301)
    assert (moved["hosts"], moved["routes"][0]["redirect"]) == (
        ["*.b.example"],
        "https://a.example{path}{query}",
    )
    assert any("acme-challenge/: univocal sends" in each.text for each in result.notes)
    assert result.server["listen"] == "0.0.0.0:80"
    assert result.server["listen_tls"] == "0.0.0.0:443"
    assert result.server["https_redirect"]
    assert result.server["tls_cert"] == str(tmp_path / "cert.pem")
    assert questions(result) == []


def test_servers_of_two_files_have_certificates_of_their_own(tmp_path):
    (tmp_path / "sites").mkdir()
    for name in ("a", "b"):
        (tmp_path / f"{name}.pem").write_text("")
        own = "listen 443 ssl; ssl_certificate NAME.pem; ssl_certificate_key NAME.pem; server_name NAME.a;"
        (tmp_path / "sites" / name).write_text(f"server {{ {own.replace('NAME', name)} {PASS} }}")
    result = imported("http { include sites/*; }", str(tmp_path / "nginx.conf"))
    found = [site.get("tls_cert", result.server["tls_cert"]) for site in result.sites]
    assert found == [str(tmp_path / name) for name in ("a.pem", "b.pem")]


def test_without_its_certificate_a_server_is_served_in_the_clear():
    result = imported(CERTBOT.format(PASS))
    assert "tls_cert" not in result.server
    assert result.server["listen"] == "0.0.0.0:80"


# Client addresses.


@cases(
    "directives, trusted, closed",
    ("", [], []),
    ("FROM real_ip_header X-Forwarded-For; real_ip_recursive on;", ["10.0.0.0/8"], []),
    ("FROM", [], CLOSED),
    ("FROM real_ip_header X-Forwarded-For;", ["10.0.0.0/8"], CLOSED),
)
def test_proxies_are_trusted_as_far_as_nginx_trusts_them(directives, trusted, closed):
    result = imported(f"server {{ {directives} allow 10.1.1.1; deny all; {PASS} }}")
    assert result.server["trusted_proxies"] == trusted
    assert result.sites[0]["access"] == {"allow": ["10.1.1.1/32"], **({"deny": closed} if closed else {})}


def test_hashes_that_univocal_cannot_check_close(tmp_path):
    (tmp_path / "users").write_text("ann:$apr1$abc$def\n")
    text = f"server {{ auth_basic a; auth_basic_user_file users; {PASS} }}"
    result = imported(text, str(tmp_path / "nginx.conf"))
    assert result.sites[0]["access"] == {"deny": CLOSED}
    assert "htpasswd -B" in questions(result)[0].text


# Caching.


@cases(
    "directives, cache",
    ("", {"bypass": ["*"]}),
    ("proxy_cache off;", {"bypass": ["*"]}),
    ("proxy_cache c;", {}),
    ("proxy_cache c; allow 10.0.0.0/8; deny all;", {"bypass": ["*"]}),
    ("proxy_cache c; proxy_cache_valid 200 302 10m; proxy_cache_valid 404 1m;",
     {"ttl": 600, "ttl_by_status": {"302": 600, "404": 60}}),
    ("proxy_cache c; proxy_cache_valid 200 10m; proxy_cache_valid any 5s;",
     {"ttl": 600, "ttl_by_status": {"301": 5, "302": 5}}),
    ("proxy_cache c; proxy_ignore_headers Cache-Control;", {"bypass": ["*"]}),
    ("proxy_cache c; proxy_ignore_headers Expires;", {}),
    ("proxy_cache c; proxy_ignore_headers Cache-Control; proxy_cache_valid 200 1m;", {"ttl": 60}),
    ("proxy_cache c; proxy_cache_use_stale updating error;", {"grace": 60}),
    ("proxy_cache c; proxy_no_cache $cookie_a; proxy_cache_bypass $cookie_a $cookie_b;",
     {"bypass_cookies": ["a", "b"]}),
    ("proxy_cache c; proxy_cache_bypass $http_pragma;", {}),
    ("proxy_cache c; proxy_no_cache $http_authorization;", {"bypass": ["*"]}),
    ("proxy_cache c; proxy_no_cache $skip;", {"bypass": ["*"]}),
    ("proxy_cache c; proxy_no_cache $mapped; proxy_cache_bypass $mapped;", {"bypass_cookies": ["a"]}),
    ("proxy_cache c; proxy_no_cache $constant;", {"bypass": ["*"]}),
    ("proxy_cache c; proxy_cache_key $host$request_uri;", {}),
    ("proxy_cache c; proxy_cache_key $host$request_uri$cookie_user;", {"bypass_cookies": ["user"]}),
    ("proxy_cache c; proxy_cache_key $host$request_uri$http_x_user;", {"bypass": ["*"]}),
    ("proxy_cache c; proxy_cache_key $server_port$request_uri;", {"bypass": ["*"]}),
)  # fmt: skip
def test_rules_of_caching_keep_people_apart(directives, cache):
    maps = "map $cookie_a $mapped { default 1; '' 0; } map $cookie_a $constant { default 0; '' 0; }"
    (site,) = imported(f"{maps} server {{ {directives} {PASS} }}").sites
    assert site.get("cache", {}) == cache


@cases(
    "directives, text",
    ("proxy_no_cache $http_pragma $cookie_a;", "Pragma of clients are passed over"),
    ("proxy_cache_bypass $http_cache_control;", "Pragma of clients are passed over"),
    ("proxy_cache_valid any 5s;", "any: of others than 200, 301 and 302"),
)
def test_rules_of_caching_that_are_left_out_are_said(directives, text):
    result = imported(f"server {{ proxy_cache c; {directives} {PASS} }}")
    assert any(text in note.text for note in result.notes)
    assert not any(note.is_open_question for note in result.notes)


# Fields, and the way to origin servers.


@cases(
    "fields, expected",
    ("X-Frame-Options DENY, Link <a>", {"set": {"X-Frame-Options": "DENY"}, "add": {"Link": "<a>"}}),
    ("Cache-Control no-store, cache-control private", {"add": {"Cache-Control": "no-store, private"}}),
    ("Vary Cookie, Vary Origin", {"add": {"Vary": "Cookie, Origin"}}),
    ("Via '1.1 a', Accept-Ranges none", {"add": {"Via": "1.1 a", "Accept-Ranges": "none"}}),
    ("Surrogate-Control no-store, CDN-Cache-Control no-store",
     {"add": {"Surrogate-Control": "no-store", "CDN-Cache-Control": "no-store"}}),
    ("Vary $by, Expires $at", {"add": {"Cache-Control": "private"}}),
    ("Set-Cookie a=1, Set-Cookie b=2", {"add": {"Set-Cookie": "a=1"}}),
    ("X-Robots-Tag none, Clear-Site-Data a", {"add": {"X-Robots-Tag": "none", "Clear-Site-Data": "a"}}),
    ("Access-Control-Allow-Methods PUT", {"add": {"Access-Control-Allow-Methods": "PUT"}}),
)  # fmt: skip
def test_lists_of_fields_are_added_to_the_origin_servers(fields, expected):
    text = " ".join(f"add_header {each};" for each in fields.split(", "))
    assert imported(f"server {{ {text} {PASS} }}").sites[0]["response"] == expected


def test_credentials_that_are_withheld_are_removed():
    text = (
        'proxy_set_header Cookie ""; proxy_set_header Authorization ""; proxy_set_header X-Sendfile-Type x;'
    )
    (site,) = imported(f"server {{ {text} {PASS} }}").sites
    assert site["request"] == {"remove": ["Cookie", "Authorization", "X-Sendfile-Type"]}


def test_an_https_origin_server_is_verified_as_nginx_does():
    text = "server { location / { %s proxy_pass https://a.example; } }"
    assert imported(text % "").sites[0]["origin"] == {"tls_verify": False}
    assert imported(text % "proxy_ssl_verify on;").sites[0]["origin"] == {"tls_verify": True}
    assert imported(text % "proxy_ssl_verify ON;").sites[0]["origin"] == {"tls_verify": True}
    absent = "proxy_ssl_verify on; proxy_ssl_trusted_certificate /no/such.pem;"
    assert imported(text % absent).sites[0]["origin"] == {"tls_verify": True, "tls_ca": "/no/such.pem"}


def test_a_stripped_prefix_is_an_upstream_with_a_path():
    rewrite = "rewrite ^/api/(.*)$ /v1/$1 break;"
    result = imported(f"server {{ {PASS} location /api/ {{ {rewrite} proxy_pass http://127.0.0.1:2; }} }}")
    assert result.sites[0]["routes"] == [
        {"path": "/api/", "upstream": "http://127.0.0.1:2/v1/", "forward": "canonical"},
        {"path": "=/api", "redirect": "/api/{query}"},
    ]
    assert questions(result) == []


@cases(
    "location, routes",
    ("/dav { return 301 /remote.php/dav$is_args$args; }", {"/dav*": "/remote.php/dav{query}"}),
    ("/new/ { return 302 https://new.example$request_uri; }",
     {"/new/": {"to": "https://new.example{path}{query}", "status": 302}}),
    ("= / { return 301 $scheme://$host/a/?$args; }", {"=/": "/a/{query}"}),
    ("~ ^/u/([0-9]+)$ { return 308 https://$http_host:8443/u?id=$1; }",
     {"~^/u/([0-9]+)$": {"to": "https://{host}:8443/u?id={1}", "status": 308}}),
    ("= /a { return http://b.example; }", {"=/a": {"to": "http://b.example", "status": 302}}),
    # nginx sends a path without its last slash on.
    ("/b/ { proxy_pass http://127.0.0.1:2; }", {"=/b": "/b/{query}"}),
    ("/b/ { proxy_pass http://127.0.0.1:2; location /b/ { deny all; } }", {"=/b": "/b/{query}"}),
    ("/b/ { proxy_pass http://127.0.0.1:2; } location = /b { proxy_pass http://127.0.0.1:3; }", {}),
    ("/b/ { proxy_pass http://127.0.0.1:2; } location /b { proxy_pass http://127.0.0.1:3; }", {}),
    # Other variables, and what refuses or comes before it, have no equal.
    ("= /a { return 301 https://$server_name/; }", {}),
    ("= /a { if ($arg_x) { return 403; } return 301 /b; }", {}),
    ("= /a { rewrite ^ /c break; return 301 /b; }", {}),
    ("= /a { return 301 //b.example/; }", {}),
    ("= /a { return 301 https://b.example$1; }", {}),
)  # fmt: skip
def test_redirects_are_written(location, routes):
    (site,) = imported(f"server {{ {PASS} location {location} }}").sites
    written = {route["path"]: route["redirect"] for route in site["routes"] if "redirect" in route}
    assert written == routes


@pytest.mark.parametrize("exact", ["= /b", "/b"])
def test_a_location_of_its_own_is_no_redirect_and_open(exact):
    own = f"location {exact} {{ proxy_pass http://127.0.0.1:3; }}"
    result = imported(f"server {{ {PASS} location /b/ {{ proxy_pass http://127.0.0.1:2; }} {own} }}")
    (own,) = [route for route in result.sites[0]["routes"] if "127.0.0.1:3" in route["upstream"]]
    assert "access" not in own
    assert questions(result) == []


def test_requests_under_way_are_bounded_as_connections_are():
    zone = "limit_conn_zone $binary_remote_addr zone=a:1m;"
    result = imported(f"http {{ {zone} server {{ limit_conn a 5; {PASS} }} }}")
    assert result.server["max_requests_per_client"] == 5
    assert questions(result) == []
    assert any("for all requests of a client" in each.text for each in result.notes)


def test_limits_of_a_dry_run_refuse_nobody():
    zones = "limit_conn_zone $binary_remote_addr zone=a:1m; limit_req_zone $remote_addr zone=b:1m rate=1r/s;"
    limits = "limit_conn a 5; limit_req zone=b; limit_req_dry_run On; limit_conn_dry_run on;"
    result = imported(f"http {{ {zones} server {{ {limits} {PASS} }} }}")
    assert "max_requests_per_client" not in result.server
    assert "access" not in result.sites[0]
    assert questions(result) == []


@cases(
    "condition, hosts",
    ("$host = www.a.example", {"aliases": ["www.a.example"], "default": True}),
    ("$host != a.example", {"aliases": ["www.a.example"]}),
    ("$scheme = http", {"default": True}),
)
def test_a_condition_on_hosts_moves_these_alone(condition, hosts):
    moved = f"if ({condition}) {{ return 301 https://a.example$request_uri; }}"
    result = imported(f"server {{ server_name a.example www.a.example; {moved} {PASS} }}")
    (site,) = result.sites
    assert {key: site[key] for key in ("aliases", "default") if key in site} == hosts
    assert questions(result) == []


def test_an_import_says_that_hosts_have_no_case_here():
    moved = "if ($http_host = www.a.example) { return 301 https://a.example$request_uri; }"
    result = imported(f"server {{ server_name a.example www.a.example; {moved} {PASS} }}")
    assert sum("without their case and port" in note.text for note in result.notes) == 1


def test_a_host_that_is_sent_elsewhere_is_refused():
    moved = "if ($host = b.example) { return 302 https://c.example$request_uri; }"
    result = imported(f"server {{ server_name a.example b.example; {moved} {PASS} }}")
    assert [(site["hosts"], "access" in site) for site in result.sites] == [
        (["a.example"], False),
        (["b.example"], True),
    ]
    assert len(questions(result)) == 1


def test_expires_and_an_added_field_are_one_cache_control():
    (site,) = imported(f"server {{ expires 1h; add_header Cache-Control public; {PASS} }}").sites
    assert site["response"] == {"set": {"Cache-Control": "max-age=3600, public"}, "remove": ["Expires"]}


def test_directives_of_the_main_context_are_no_guards():
    result = imported(f"user www; worker_processes auto; http {{ server {{ {PASS} }} }}")
    assert "may guard" not in " ".join(note.text for note in result.notes)
    assert "access" not in result.sites[0]


@cases(
    "directives, upstream, is_said",
    ("location /x/ { error_page 418 = @app; return 418; }", APP, False),
    ("error_page 403 404 =200 @app; location /x/ { return 404; }", APP, False),
    ("error_page 404 @app; location /x/ { return 404; }", None, False),
    ("error_page 404 /a; error_page 404 = @app; location /x/ { return 404; }", None, False),
    ("error_page 418 = @app; location /x/ { return 403; return 418; }", None, False),
    ("error_page 404 = @app; location /x/ { return 404; TO }", APP, False),
    ("error_page 404 = @app; location /x/ { error_page 500 /a; return 404; }", None, False),
    ("error_page 404 = @app; location /x/ { return 404 no; }", None, False),
    ("error_page 418 = @app; location /x/ { if ($arg_a) { return 418; } TO }", None, True),
    ("error_page 404 = /a.php; location /x/ { return 404; }", None, True),
    ("error_page 418 = @app; if ($arg_a) { return 418; } location /x/ { TO }", None, True),
    ("error_page 403 = @app; location /x/ { return 403; allow 10.0.0.0/8; deny all; }", APP, False),
    ("location /x/ { error_page 403 = @app; deny all; }", None, True),
)
def test_a_status_that_a_named_location_answers_leads_there(directives, upstream, is_said):
    """`is_said`: nginx serves these requests, and univocal refuses them."""
    result = imported(f"server {{ {directives} location @app {{ proxy_pass {APP}; }} {PASS} }}")
    (site,) = result.sites
    route = next((each for each in site["routes"] if each["path"] == "/x/"), site)
    assert (route.get("upstream") if route is not site else None) in (upstream, "http://b")
    assert upstream or CLOSED in [route.get("access", {}).get("deny"), site.get("access", {}).get("deny")]
    assert bool(questions(result)) is is_said


USERS = "auth_basic a; auth_basic_user_file users;"


@cases(
    "location, named, access",
    (f"{USERS} location /x/ {{ auth_basic off; TRY }}", "", {"basic": "users"}),
    (f"{USERS} location /x/ {{ auth_basic off; LED }}", "", {"basic": "users"}),
    (f"{USERS} location /x/ {{ TRY }}", "auth_basic off;", {"basic": "users"}),
    (f"{USERS} location /x/ {{ LED }}", "auth_basic off;", {}),
    (f"{USERS} location /x/ {{ TRY }}", "", {"basic": "users"}),
    ("deny 10.0.0.1; location /x/ { allow all; TRY }", "", {"deny": CLOSED}),
    ("deny 10.0.0.1; location /x/ { allow all; LED }", "", {"deny": ["10.0.0.1/32"]}),
    (f"{USERS} location /x/ {{ TRY }}", f"auth_basic_user_file {'a' * 90};", {"deny": CLOSED}),
    ("location /x/ { deny 10.0.0.1; TRY }", USERS, {"deny": ["10.0.0.1/32"], "basic": "users"}),
    ("location /x/ { deny 10.0.0.1; LED }", USERS, {"basic": "users"}),
    (f"{USERS} location /a/ {{ auth_basic off; TO location /x/ {{ LED }} }}", "", {"basic": "users"}),
    ("location = /q { TO } location /x/ { auth_request /q; TRY }", "", {"forward": "http://b/q"}),
)
def test_named_locations_have_the_guards_that_nginx_asks_for(location, named, access):
    result = imported(f"server {{ {location} location @app {{ {named} proxy_pass {APP}; }} {PASS} }}")
    (site,) = result.sites
    route = next(each for each in site["routes"] if each["path"] == "/x/")
    assert route.get("access", site.get("access", {})) == access
    assert bool(questions(result)) is (access == {"deny": CLOSED})


@cases("size, named, expected", ("4k", "8k", 4096), ("8k", "4k", 4096), ("0", "4k", 4096), ("4k", "0", 4096))
@pytest.mark.parametrize("leads", ["try_files $uri @app;", "error_page 418 = @app; return 418;"])
def test_a_body_is_as_small_as_both_locations_say(size, named, expected, leads):
    named = f"location @app {{ client_max_body_size {named}; proxy_pass http://127.0.0.1:2; }}"
    result = imported(f"server {{ {PASS} location /x/ {{ client_max_body_size {size}; {leads} }} {named} }}")
    assert [each["max_body"] for each in result.sites[0]["routes"] if each["path"] == "/x/"] == [expected]


@cases(
    "directives, page",
    ("error_page 403 = @app; location /x/ { deny all; TO }", "error_page 403 = @app"),
    ("error_page 403 =202 /a; location /x/ { deny 10.0.0.1; TO }", "error_page 403 =202"),
    (f"error_page 401 = @app; location /x/ {{ {USERS} TO }}", "error_page 401 = @app"),
    ("error_page 403 http://a/; location /x/ { limit_except GET { deny all; } TO }", "http:"),
    ("error_page 404 = @app; location /x/ { internal; TO }", "error_page 404 = @app"),
    ("error_page 418 =202 @app; location /x/ { return 418; }", "error_page 418 =202 @app; return 418"),
    ("error_page 403 /403.html; location /x/ { deny all; TO }", None),
    ("error_page 403 =403 @app; location /x/ { deny all; TO }", None),
)
def test_a_refusal_that_nginx_leads_elsewhere_is_an_open_question(directives, page):
    result = imported(f"server {{ {directives} location @app {{ proxy_pass {APP}; }} {PASS} }}")
    found = [note.text for note in questions(result)]
    assert any(page in text for text in found) if page is not None else found == []
    assert not any("refused here, too" in note.text for note in result.notes) or page is None


def test_try_files_falls_back_to_the_named_locations_server():
    named = "location @app { proxy_set_header Host $host; proxy_pass http://127.0.0.1:1; }"
    result = imported(f"server {{ location / {{ try_files $uri @app; }} {named} }}")
    assert (result.sites[0]["upstream"], result.sites[0]["origin_host"]) == ("http://127.0.0.1:1", "site")
    assert questions(result) == []


@cases(
    "first, then, hosts",
    ("w.example", ".w.example", []),  # nginx ignores all of the later one
    (".w.example", "w.example *.w.example v.example", ["v.example"]),
    ("*.w.example", "w.example", ["w.example"]),
)
def test_of_a_host_and_its_pattern_the_first_counts(first, then, hosts):
    refusing = f"server {{ listen 80; server_name {first}; return 403; }}"
    result = imported(f"{refusing} server {{ listen 80; server_name {then}; {PASS} }}")
    assert [site["hosts"] for site in result.sites if "access" not in site] == ([hosts] if hosts else [])


def test_of_two_patterns_for_the_same_hosts_the_first_counts():
    text = "server {{ listen 80; server_name {}; return 403; }} server {{ listen 80; server_name {}; {} }}"
    last = f"server {{ listen 80; server_name b.example; {PASS} }}"
    for names in ((".w.example", "*.w.example"), ("*.w.example", ".w.example")):
        result = imported(text.format(*names, PASS) + last)
        assert [site["hosts"] for site in result.sites] == [["b.example"]]


@cases("names, hosts", (("x$", "^adm"), ["~x$", "~^adm"]), (("^adm", "x$"), ["~^adm", "~x$"]))
def test_of_two_expressions_the_first_counts(names, hosts):
    servers = {"x$": PASS, "^adm": "return 403;"}
    text = "".join(f"server {{ listen 80; server_name ~{name}; {servers[name]} }}" for name in names)
    last = f"server {{ listen 80; server_name b.example; {PASS} }}"
    assert [site["hosts"][0] for site in imported(text + last).sites][:2] == hosts


def served(*names):
    return f"server {{ server_name {' '.join(names)}; {PASS} }}"


def test_expressions_behind_one_that_no_site_has_refuse():
    refusing = "server { server_name ~^a(?=b); return 403; }"
    result = imported(f"server {{ server_name b.example; {PASS} }} {refusing}" + served("~^a", "*.example"))
    assert [(site["hosts"], "access" in site) for site in result.sites] == [
        (["~^a"], True),
        (["b.example"], False),
        (["*.example"], False),
    ]
    assert sum("nginx looks for" in note.text for note in questions(result)) == 1
    assert "access" not in imported(served("~^a") + refusing).sites[0]


@pytest.mark.parametrize("names", ["*.example", ".example", "a.*", "~^a"])
def test_hosts_beside_the_name_of_the_machine_refuse(names):
    machine = "server { server_name $hostname; return 403; }"
    for text in (served(names, "b.example") + machine, machine + served(names, "b.example")):
        result = imported(text)
        opened = [host for site in result.sites if "access" not in site for host in site["hosts"]]
        assert [host for host in opened if host != "example"] == ["b.example"]
        assert questions(result)
    assert not questions(imported(served(names, "$hostname", "b.example")))


@pytest.mark.parametrize("default", ["", "server { return 444; }"])
def test_hosts_that_no_site_names_are_an_open_question(default):
    result = imported(default + served("~^a(?=b)", "c.example"))
    assert len(questions(result)) == (1 if default else 0)


def test_a_prefix_of_bytes_has_its_rules_of_caching():
    rule = "proxy_cache_key $host$request_uri$http_x_user;"
    locations = f"location / {{ %s }} location /a {{ {rule} %s }}".replace("%s", "proxy_pass http://a;")
    (site,) = imported(f"server {{ proxy_cache c; {locations} }}").sites
    assert [(route["path"], route["cache"]) for route in site["routes"]] == [("/a*", {"bypass": ["*"]})]
