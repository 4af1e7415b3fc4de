"""The formats of the access log: cached, and templates of one's own."""

import json
from dataclasses import replace

import pytest

from examples import cases
from support import an_outcome
from univocal.cache.decide import Handling
from univocal.engine.outcome import NotedFields, Times
from univocal.http.errors import Failure
from univocal_app.observe.log_lines import TemplateError, as_cached, as_combined, as_json, form_of

HOSTILE = b'/a"\\\x1b[2J\r\n\x00\xff{url}'
DOWN = Failure("http://10.0.0.1:1, http://10.0.0.2:1", "", "down", "every origin server is down")


def outcome(target=b"/a", **others):
    made = an_outcome(
        target,
        decision=None,
        times=Times(1_700_000_000.25, 0.001, 0.0021234567),
        client="192.0.2.1",
        handling=Handling(fwd="uri-miss", stored=True),
        noted=NotedFields(HOSTILE),
        host="en.example:8080",
        server="http://127.0.0.1:9001",
    )
    return replace(made, **others)


def test_cached_is_combined_and_four_columns():
    combined, cached = as_combined(outcome()), as_cached(outcome())
    assert cached == combined[:-1] + b" en.example:8080 uri-miss 0.002123 127.0.0.1:9001\n"
    assert as_cached(outcome(server="http://a.example:9001 ::1")).endswith(b" [::1]:9001\n")


@cases(
    "user, column, member",
    (b"", b"-", None),
    (b"alice", b"alice", "alice"),
    (b"al ice", b"al\\x20ice", "al ice"),
    (b'"\x1b\xff', b"\\x22\\x1B\\xFF", '"\x1b\xff'),
)
def test_the_user_is_in_every_form(user, column, member):
    made = outcome(noted=NotedFields(user=user))
    assert as_combined(made).startswith(b"192.0.2.1 - " + column + b" [")
    assert as_cached(made).startswith(b"192.0.2.1 - " + column + b" [")
    assert json.loads(as_json(made)).get("user") == member
    assert form_of("{user}")(made) == (column.replace(b"\\x20", b" ")) + b"\n"


def test_cached_has_the_failed_origin_servers_last():
    line = as_cached(outcome(failure=DOWN, server="", handling=Handling(), host=""))
    servers = b"origin http://10.0.0.1:1, http://10.0.0.2:1 at -: down: every origin server is down"
    rest = b' - - 0.002123 - "%b"\n' % servers
    assert line.endswith(rest)


@cases(
    *("form", "json", "combined", "cached", "{target} {user_agent} {client}", '"{user_agent}"'),
    "{origin.address} {origin.error}",
)
def test_no_client_forges_a_line(form):
    text = HOSTILE.decode("latin-1")
    forged = outcome(HOSTILE, host=text, client="1 2\n3", failure=Failure("http://a", text, "down", text))
    line = form_of(form)(forged)
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    assert all(0x20 <= octet < 0x7F for octet in line[:-1])
    assert line.count(b'"') % 2 == 0 or json.loads(line)["target"] == text


def test_a_template_has_the_values_of_the_object():
    told = outcome(status=502, failure=DOWN, reasons=("origin-unreachable",))
    line = form_of(
        "{{{status}}}\t{cache}|{stored}|{reasons}|{origin.reason}|{server}|{url}|{purge}|{seconds}"
    )(told)
    assert line == b"{502}\turi-miss|true|origin-unreachable|down|http://127.0.0.1:9001|-|-|0.002123\n"


def test_every_member_of_the_object_is_a_name():
    told = json.loads(as_json(outcome(reasons=("bad-host",))))
    assert all(form_of(f"{{{name}}}")(outcome()).endswith(b"\n") for name in told)


def test_the_object_names_the_origin_server_that_answered():
    assert json.loads(as_json(outcome()))["server"] == "http://127.0.0.1:9001"
    assert "server" not in json.loads(as_json(outcome(server="")))


@cases(
    "template, allowed",
    ("{clinet}", "client"),
    ("{client!r}", "client"),
    ("{status:5}", "status"),
    ("{origin.password}", "origin.url"),
    ("{}", "client"),
    ("{client", "in braces"),
    ("client}{", "in braces"),
    ("{client}\n{url}", "one line"),
    ("jsn", "json, combined, cached"),
)
def test_a_template_that_cannot_be_is_refused(template, allowed):
    with pytest.raises(TemplateError, match=allowed):
        form_of(template)


@cases("status, said", (304, "revalidated"), (500, "stale"), (0, "stale"))
@pytest.mark.parametrize("collapsed", [False, True], ids=["who asked", "who waited"])
def test_a_response_that_was_confirmed_is_revalidated(status, said, collapsed):
    made = outcome(handling=Handling(fwd="stale", fwd_status=status, collapsed=collapsed))
    assert form_of("{cache}")(made) == said.encode() + b"\n"
    assert json.loads(as_json(made))["cache"] == said
