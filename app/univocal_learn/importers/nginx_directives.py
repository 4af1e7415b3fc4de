"""nginx's directives by what they may do: closed is the default, and these lists say what stays open.

A directive is *taken over*, or *harmless* (it refuses no request and keeps no people apart), or it closes
what it applies to: a directive of a module that nobody here knows may be a guard.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from univocal_learn.importers.nginx_syntax import Directive, words_of

# Directives that become settings of univocal, or are read with their block.
TAKEN: Final = words_of(
    """
    add_header allow auth_basic auth_basic_user_file auth_request_set brotli client_max_body_size deny
    error_page expires gzip http2 limit_conn limit_conn_zone limit_req limit_req_zone listen location
    merge_slashes proxy_cache proxy_cache_bypass proxy_cache_key proxy_cache_use_stale proxy_cache_valid
    proxy_connect_timeout proxy_hide_header proxy_ignore_headers proxy_no_cache proxy_pass proxy_read_timeout
    proxy_set_header proxy_ssl_trusted_certificate proxy_ssl_verify real_ip_header satisfy server server_name
    set_real_ip_from ssl_certificate ssl_certificate_key upstream zstd
    """
)

# Directives by which nginx answers itself. They are read with their location.
CONTENT: Final = words_of(
    """
    alias autoindex dav_methods empty_gif fastcgi_pass flv grpc_pass hls js_content memcached_pass mp4
    perl proxy_pass random_index return root scgi_pass status stub_status uwsgi_pass
    vhost_traffic_status_display api
    """
)

_HARMLESS: Final = words_of(
    """
    absolute_redirect access_log add_after_body add_before_body aio alias auth_basic_delay autoindex break
    chunked_transfer_encoding connection_pool_size daemon default_type disable_symlinks error_log etag events
    geo hash http if_modified_since ignore_invalid_headers image_filter_buffer index ip_hash
    large_client_header_buffers least_conn limit_rate limit_rate_after map max_ranges more_clear_headers
    more_set_headers output_buffers override_charset port_in_redirect postpone_output proxy_bind
    proxy_busy_buffers_size proxy_cache_background_update proxy_cache_convert_head proxy_cache_lock
    proxy_cache_lock_age proxy_cache_lock_timeout proxy_cache_max_range_offset proxy_cache_methods
    proxy_cache_min_uses proxy_cache_path proxy_cache_revalidate proxy_force_ranges proxy_http_version
    proxy_ignore_client_abort proxy_intercept_errors proxy_limit_rate proxy_max_temp_file_size
    proxy_pass_header proxy_redirect proxy_request_buffering proxy_send_lowat proxy_send_timeout
    proxy_socket_keepalive proxy_ssl_ciphers proxy_ssl_conf_command proxy_ssl_name proxy_ssl_protocols
    proxy_ssl_server_name proxy_ssl_session_reuse proxy_ssl_verify_depth proxy_store proxy_store_access
    proxy_temp_file_write_size proxy_temp_path queue random read_ahead real_ip_recursive
    recursive_error_pages request_pool_size reset_timedout_connection root send_lowat send_timeout
    server_name_in_redirect server_tokens set slice source_charset split_clients ssl ssl_buffer_size
    ssl_ciphers ssl_client_certificate ssl_conf_command ssl_crl ssl_dhparam ssl_early_data ssl_ecdh_curve
    ssl_password_file ssl_prefer_server_ciphers ssl_protocols ssl_trusted_certificate ssl_verify_depth
    status_zone sticky subrequest_output_buffer_size thread_pool underscores_in_headers
    uninitialized_variable_warn valid_referers vhost_traffic_status vhost_traffic_status_zone zone
    """
)
_HARMLESS_FAMILIES: Final = words_of(
    """
    ancient_browser brotli_ charset client_body_ client_header_ directio exit_worker_by_lua fastcgi_ geoip
    grpc_ gunzip gzip_ http2_ http3 init_by_lua init_worker_by_lua js_import js_path js_set keepalive
    limit_conn_ limit_req_ lingering_ log_ lua_ map_hash_ memcached_ mirror modern_browser msie_
    open_file_cache open_log_file_cache opentelemetry opentracing otel_ pcre_jit proxy_buffer proxy_cookie_
    proxy_headers_hash_ proxy_next_upstream quic_ referer_hash_ resolver scgi_ sendfile server_names_hash_
    set_by_lua ssi ssl_session_ ssl_stapling sub_filter tcp_ types userid uwsgi_ variables_hash_ zipkin_
    zstd_
    """
)
_NEVER_HARMLESS: Final = frozenset({"fastcgi_pass", "uwsgi_pass", "scgi_pass", "grpc_pass", "memcached_pass"})
# Directives that close unless their argument says so.
_HARMLESS_VALUES: Final[Mapping[str, frozenset[str]]] = {
    "satisfy": frozenset({"all"}),
    "ssl_verify_client": frozenset({"off", "optional", "optional_no_ca"}),
    "ssl_ocsp": frozenset({"off"}),
    "ssl_reject_handshake": frozenset({"off"}),
    "auth_request": frozenset({"off"}),
    "auth_jwt": frozenset({"off"}),
    "proxy_pass_request_headers": frozenset({"on"}),
    "proxy_pass_request_body": frozenset({"on"}),
    "modsecurity": frozenset({"off"}),
}

HARMLESS_FILES: Final = re.compile(
    r"(?:.*/)?(?:(?:fastcgi|uwsgi|scgi)_params|fastcgi(?:-php)?\.conf|mime\.types|koi-(?:utf|win)|win-utf"
    r"|options-ssl-nginx\.conf|ssl-params\.conf)"
)

# Directives that an `if` may hold and still let the request pass.
_HARMLESS_IN_IF: Final = frozenset(
    {"set", "break", "add_header", "access_log", "expires", "limit_rate", "more_set_headers"}
)
_TO_TLS: Final = re.compile(r"https?://(?:\$(?:host|http_host|server_name)|[\w.-]+)(?::\d+)?\$request_uri")
_ABOUT_A_PLACE: Final = re.compile(
    r"\(?\s*\$(?:scheme|https|server_port|ssl_protocol|http_x_forwarded_proto|host|http_host)"
    r"\s*(?:!?=|!?~\*?)\s*[^)]*\)?"
)
_OPTIONS: Final = re.compile(r"\(?\s*\$request_method\s*=\s*OPTIONS\s*\)?")
_ANSWERED: Final = re.compile(r"20[0-6]")
_LED: Final = re.compile(r"=(?:[23][0-9]{2})?")  # by an error_page that gives another status

_NOT_OURS: Final = "not part of a profile or a route"
_UNKNOWN: Final = "not part of a profile or a route, and it may guard what nginx serves"
_REWRITES: Final = "changes what a URL means; [[rewrite]] knows substrings only (docs/profiles.md)"
_SERVES: Final = "nginx answers this by itself; univocal maps paths to origin servers only"
_GUARDS: Final = "guards what nginx serves, by what univocal has no equal for"
_MOVES: Final = (
    "nginx redirects these requests, univocal serves them: see [server] https_redirect, aliases of sites"
)
_OF_OPTIONS: Final = "nginx answers these requests by itself; univocal sends them to the origin server"
_VARIES: Final = "no setting has variables: the notes name the directives in which its own counts"
_PASSES: Final = "lets its requests pass; its fields and variables, and its own log, are left out"
_WITHHOLDS: Final = "keeps what clients send from the origin server, by what univocal has no equal for"
_ELSEWHERE: Final[Mapping[str, str]] = {
    **dict.fromkeys(("gzip_types", "gzip_min_length", "gzip_vary"), "[cache] compress"),
    **dict.fromkeys(("proxy_cache_path", "proxy_cache_lock", "proxy_cache_background_update"), "[cache]"),
    "keepalive": "[origin] max_idle",
    "access_log": "[server] access_log",
    "proxy_intercept_errors": "[server] error_pages, which are for univocal's own answers alone",
}


def _in_lua(*phases: str) -> list[str]:
    """The directives that run a script in these phases."""
    return [f"{phase}_by_lua{form}" for phase in phases for form in ("", "_block", "_file")]


_WHY: Final[Mapping[str, str]] = {
    **dict.fromkeys(("rewrite", "if", "set", "try_files"), _REWRITES),
    **dict.fromkeys(("map", "geo", "split_clients"), _VARIES),
    **dict.fromkeys(("return", "root", "alias", "index", "autoindex", "fastcgi_pass", "uwsgi_pass"), _SERVES),
    **dict.fromkeys(("scgi_pass", "grpc_pass", "memcached_pass", "random_index", "empty_gif"), _SERVES),
    **dict.fromkeys(("auth_request", "auth_jwt", "internal", "limit_except", "ssl_verify_client"), _GUARDS),
    **dict.fromkeys(("limit_conn", "valid_referers", "secure_link", "secure_link_md5"), _GUARDS),
    **dict.fromkeys(("proxy_pass_request_headers", "proxy_pass_request_body", "proxy_set_body"), _WITHHOLDS),
    "satisfy": "univocal asks for every rule, never for one of them",
    **{name: f"left out: see {keys}" for name, keys in _ELSEWHERE.items()},
    **dict.fromkeys(_in_lua("content"), _SERVES),
    **dict.fromkeys(_in_lua("rewrite", "set", "server_rewrite", "balancer"), _REWRITES),
    **dict.fromkeys(_in_lua("access"), _GUARDS),
    "include": "the other file is not read, and may hold access rules; --root DIR says where it is",
    "proxy_redirect": "univocal maps Location of the origin server's own URLs; off: redirects = keep",
    "proxy_cookie_path": "univocal maps the path of cookies as the location's: cookie_path = map",
    "proxy_cookie_domain": "univocal leaves the domain of cookies as the origin server sent it",
}


def reason(directive: Directive) -> str:
    """The reason why a directive has no place in a profile or a route."""
    if directive.name == "include" and not closes(directive):
        return "not read: a file of this name has no access rules"
    if not closes(directive):
        if directive.name == "if":
            rest = answers_of(directive)
            is_answered = bool(rest) and _ANSWERED.fullmatch(rest[0].arguments[0])
            return _OF_OPTIONS if is_answered else _MOVES if rest else _PASSES
        if directive.name in _HARMLESS_VALUES:
            return "refuses nothing and withholds nothing, with this value"
        if directive.name == "set":
            return _VARIES
    known = _WHY.get(directive.name)
    if known is not None:
        return known
    return _UNKNOWN if closes(directive) else _NOT_OURS


def closes(directive: Directive) -> bool:
    """Tell whether a directive may refuse requests, or keep people apart, in a way that has no equal here."""
    name, arguments = directive.name, directive.arguments
    if name in _HARMLESS_VALUES:
        return not (arguments and arguments[0] in _HARMLESS_VALUES[name])
    if name == "if":
        return not _is_harmless_if(directive)
    if changes_query(directive):
        return True
    if name == "include":
        return not all(HARMLESS_FILES.fullmatch(each) for each in arguments)
    harmless = name in TAKEN or name in _HARMLESS
    family = name.startswith(tuple(_HARMLESS_FAMILIES)) and name not in _NEVER_HARMLESS
    return not (harmless or family)


def changes_query(directive: Directive) -> bool:
    """Tell whether the origin server gets another query than the client sent."""
    return directive.name == "set" and directive.arguments[:1] == ["$args"]


def answers_of(directive: Directive) -> list[Directive]:
    """The directives of an `if` that do not let the request pass."""
    return [each for each in directive.block or [] if each.name not in _HARMLESS_IN_IF or changes_query(each)]


def refuses(directive: Directive) -> bool:
    """Tell whether an `if` or another guard refuses all that it keeps from the origin server."""
    return directive.name != "if" or all(map(is_refusal, answers_of(directive)))


def _is_harmless_if(directive: Directive) -> bool:
    """Tell whether an `if` lets the request pass, moves a whole site, or answers OPTIONS."""
    rest, condition = answers_of(directive), " ".join(directive.arguments)
    if not rest:
        return True
    if len(rest) != 1 or rest[0].name != "return" or not rest[0].arguments:
        return False
    if _OPTIONS.fullmatch(condition):
        return _ANSWERED.fullmatch(rest[0].arguments[0]) is not None
    moves = _TO_TLS.fullmatch(rest[0].arguments[-1]) is not None
    return moves and _ABOUT_A_PLACE.fullmatch(condition) is not None


def leading(pages: Iterable[Directive], status: str) -> Directive | None:
    """The error_page by which nginx gives another answer than the refusal that a status is; None for none."""
    for each in pages:
        *statuses, url = each.arguments or [""]
        if status in statuses:
            is_elsewhere = _LED.fullmatch(statuses[-1]) or url.startswith(("http://", "https://"))
            return each if is_elsewhere else None
    return None


def is_refusal(directive: Directive) -> bool:
    """Tell whether a `return` or `internal` refuses, so that a closed route is its equal."""
    if directive.name == "internal":
        return True
    status = (directive.arguments or [""])[0]
    is_whole = directive.name == "return" and not directive.meaning
    return is_whole and len(status) == 3 and status.isdigit() and status >= "400"
