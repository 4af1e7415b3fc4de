"""Fields that the operator sets and removes."""

import pytest

from examples import cases
from univocal.cache.stored import head_fields, render_head
from univocal.http.field_edits import (
    FieldEdits,
    RouteEdits,
    edits_of,
    for_request,
    request_fault,
    response_fault,
    value_fault,
)

FIELDS = [(b"server", b"gunicorn"), (b"x-a", b"1"), (b"x-a", b"2"), (b"x-ab", b"3")]


def test_set_replaces_every_line_of_its_name():
    edits = FieldEdits({b"x-a": b"new"})
    assert edits.apply(FIELDS) == [(b"server", b"gunicorn"), (b"x-ab", b"3"), (b"x-a", b"new")]


def test_added_fields_stand_beside_others_of_their_name():
    edits, head = FieldEdits({b"server": None}, added=[(b"x-a", b"3")]), render_head(200, FIELDS)
    assert edits.apply(FIELDS) == [(b"x-a", b"1"), (b"x-a", b"2"), (b"x-ab", b"3"), (b"x-a", b"3")]
    assert head_fields(edits.apply_to_head(head)) == edits.apply(FIELDS)


def test_remove_leaves_longer_names():
    edits = FieldEdits({b"x-a": None, b"server": None})
    assert edits.apply(FIELDS) == [(b"x-ab", b"3")]


@cases(
    "values",
    {b"x-a": b"new"},
    {b"x-a": None},
    {b"server": None, b"x-ab": b""},
    {b"new": b"\\1 \\g<0>"},
    {b"x.a": None},
)
def test_heads_and_lists_of_fields_change_alike(values):
    edits, head = FieldEdits(values), render_head(200, FIELDS)
    changed = edits.apply_to_head(head)
    assert changed.startswith(b"HTTP/1.1 200 OK\r\n")
    assert changed.endswith(b"\r\n")
    assert head_fields(changed) == edits.apply(FIELDS)


def test_withheld_fields_reach_the_origin_server_alone():
    edits = FieldEdits(
        {b"authorization": b"Basic b3Vy", b"x-tenant": b"en", b"pragma": None}, frozenset((b"authorization",))
    )
    client = [(b"authorization", b"theirs"), (b"pragma", b"no-cache"), (b"accept", b"*/*")]
    exposed = edits.expose(client)
    assert exposed == [(b"accept", b"*/*"), (b"x-tenant", b"en")]
    assert edits.supply(exposed) == [
        (b"accept", b"*/*"),
        (b"authorization", b"Basic b3Vy"),
        (b"x-tenant", b"en"),
    ]


def test_conditions_of_the_cache_are_not_removed():
    edits = FieldEdits({b"if-none-match": None, b"x": b"1"})
    assert edits.supply([(b"if-none-match", b'"ours"')]) == [(b"if-none-match", b'"ours"'), (b"x", b"1")]


NEVER = [
    *("Connection", "Content-Length", "Host", "Transfer-Encoding", "cache-status", "Trailer"),
    *("TE", "Upgrade"),
]


@pytest.mark.parametrize("name", [*NEVER, "Forwarded", "X-Forwarded-For", "Via", "", "a b", "a:b", "ä"])
def test_request_fields_that_are_never_changed(name):
    assert request_fault(name, is_set=True)
    assert request_fault(name, is_set=False)


@cases("name", *NEVER, "Age", "Content-Encoding", "Content-Range", "Date", "Vary", "a\r\nb")
def test_response_fields_that_are_never_changed(name):
    assert response_fault(name, is_set=True)
    assert response_fault(name, is_set=False)


@pytest.mark.parametrize("name", ["Cache-Control", "If-None-Match", "Range"])
def test_fields_that_steer_the_cache_may_only_be_removed(name):
    assert request_fault(name, is_set=True)
    assert not request_fault(name, is_set=False)


@pytest.mark.parametrize("name", ["ETag", "Last-Modified"])
def test_validators_are_removed_but_not_set(name):
    assert response_fault(name, is_set=True)
    assert not response_fault(name, is_set=False)


@pytest.mark.parametrize("name", ["X-Tenant", "Authorization", "X-Script-Name", "Accept-Encoding", "Cookie"])
def test_ordinary_request_fields_may_be_set(name):
    assert not request_fault(name, is_set=True)


@pytest.mark.parametrize("value", ["a\r\nX: 1", "a\nb", "\x00", "a\tb\x7f", " a", "a "])
def test_values_that_would_be_other_fields_are_refused(value):
    assert value_fault(value)


@pytest.mark.parametrize("value", ["", "max-age=1; includeSubDomains", "«ü»"])
def test_values_of_one_line_may_be(value):
    assert not value_fault(value)


FACTS = {
    "client": b"192.0.2.1",
    "host": b"a",
    "scheme": b"https",
    "path": b"/p",
    "request_id": b"7",
    "user": b"u",
}


@cases(
    "value, filled",
    (b"{client}", b"192.0.2.1"),
    (b"{scheme}://{host}{path}", b"https://a/p"),
    (b"id={request_id};user={user}", b"id=7;user=u"),
    (b"{{{client}}}", b"{192.0.2.1}"),
    (b"{{client}}", b"{client}"),
    (b"{{client}} {host}", b"{client} a"),
    # Without a name a value is what it is: JSON, say.
    (b'{"a": {"b": 1}}', b'{"a": {"b": 1}}'),
    (b"{{", b"{{"),
    (b"{}", b"{}"),
)
def test_a_name_in_braces_stands_for_its_value(value, filled):
    assert value_fault(value.decode()) == ""
    edits, named = edits_of({b"x": value})
    assert edits is not None
    edits = edits if named is None else named.filled(FACTS)
    assert edits.apply([(b"x", b"theirs")]) == [(b"x", filled)]


@pytest.mark.parametrize("value", ["{clinet}", "{client} {", "} {client}", "{client}{other}", "{client}}"])
def test_an_unknown_name_or_a_lone_brace_is_refused(value):
    assert "{client}" in value_fault(value)


@pytest.mark.parametrize("fact", [b"", b"a\r\nb: c", b"a\nb", b"a\x00", b" a", b"a ", b"\x7f"])
def test_an_unknown_or_unfit_value_leaves_the_field_out(fact):
    _, named = edits_of({b"x": b"{user}", b"y": b"1"}, added=[(b"z", b"{user}")])
    assert named is not None
    edits = named.filled({**FACTS, "user": fact})
    assert edits.apply([(b"x", b"theirs"), (b"z", b"own")]) == [(b"z", b"own"), (b"y", b"1")]


def test_a_request_that_may_be_stored_goes_without_its_client():
    request, named = edits_of({b"x-real-ip": b"{client}", b"x-host": b"{host}"})
    mine = for_request(RouteEdits(request=request, named_request=named), FACTS)
    assert mine.request is not None
    assert mine.alone is not None
    assert mine.request.apply([(b"x-real-ip", b"6.6.6.6")]) == [(b"x-host", b"a")]
    assert mine.alone.apply([]) == [(b"x-real-ip", b"192.0.2.1"), (b"x-host", b"a")]
