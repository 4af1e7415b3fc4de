"""Fields that the operator sets and removes."""

from __future__ import annotations

import pytest

from univocal.cache.stored import head_fields, render_head
from univocal.http.field_edits import FieldEdits, request_fault, response_fault, value_fault

FIELDS = [(b"server", b"gunicorn"), (b"x-a", b"1"), (b"x-a", b"2"), (b"x-ab", b"3")]


def test_set_replaces_every_line_of_its_name() -> None:
    edits = FieldEdits({b"x-a": b"new"})
    assert edits.apply(FIELDS) == [(b"server", b"gunicorn"), (b"x-ab", b"3"), (b"x-a", b"new")]


def test_added_fields_stand_beside_others_of_their_name() -> None:
    edits, head = FieldEdits({b"server": None}, added=[(b"x-a", b"3")]), render_head(200, FIELDS)
    assert edits.apply(FIELDS) == [(b"x-a", b"1"), (b"x-a", b"2"), (b"x-ab", b"3"), (b"x-a", b"3")]
    assert head_fields(edits.apply_to_head(head)) == edits.apply(FIELDS)


def test_remove_leaves_longer_names() -> None:
    edits = FieldEdits({b"x-a": None, b"server": None})
    assert edits.apply(FIELDS) == [(b"x-ab", b"3")]


@pytest.mark.parametrize(
    "values",
    [
        {b"x-a": b"new"},
        {b"x-a": None},
        {b"server": None, b"x-ab": b""},
        {b"new": b"\\1 \\g<0>"},
        {b"x.a": None},
    ],
)
def test_heads_and_lists_of_fields_change_alike(values: dict[bytes, bytes | None]) -> None:
    edits, head = FieldEdits(values), render_head(200, FIELDS)
    changed = edits.apply_to_head(head)
    assert changed.startswith(b"HTTP/1.1 200 OK\r\n")
    assert changed.endswith(b"\r\n")
    assert head_fields(changed) == edits.apply(FIELDS)


def test_withheld_fields_reach_the_origin_server_alone() -> None:
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


def test_conditions_of_the_cache_are_not_removed() -> None:
    edits = FieldEdits({b"if-none-match": None, b"x": b"1"})
    assert edits.supply([(b"if-none-match", b'"ours"')]) == [(b"if-none-match", b'"ours"'), (b"x", b"1")]


NEVER = [
    "Connection",
    "Content-Length",
    "Host",
    "Transfer-Encoding",
    "cache-status",
    "Trailer",
    "TE",
    "Upgrade",
]


@pytest.mark.parametrize("name", [*NEVER, "Forwarded", "X-Forwarded-For", "Via", "", "a b", "a:b", "ä"])
def test_request_fields_that_are_never_changed(name: str) -> None:
    assert request_fault(name, is_set=True)
    assert request_fault(name, is_set=False)


@pytest.mark.parametrize(
    "name", [*NEVER, "Age", "Content-Encoding", "Content-Range", "Date", "Vary", "a\r\nb"]
)
def test_response_fields_that_are_never_changed(name: str) -> None:
    assert response_fault(name, is_set=True)
    assert response_fault(name, is_set=False)


@pytest.mark.parametrize("name", ["Cache-Control", "If-None-Match", "Range"])
def test_what_steers_the_cache_is_removed_but_not_set(name: str) -> None:
    assert request_fault(name, is_set=True)
    assert not request_fault(name, is_set=False)


@pytest.mark.parametrize("name", ["ETag", "Last-Modified"])
def test_validators_are_removed_but_not_set(name: str) -> None:
    assert response_fault(name, is_set=True)
    assert not response_fault(name, is_set=False)


@pytest.mark.parametrize("name", ["X-Tenant", "Authorization", "X-Script-Name", "Accept-Encoding", "Cookie"])
def test_ordinary_request_fields_may_be_set(name: str) -> None:
    assert not request_fault(name, is_set=True)


@pytest.mark.parametrize("value", ["a\r\nX: 1", "a\nb", "\x00", "a\tb\x7f", " a", "a "])
def test_values_that_would_be_other_fields_are_refused(value: str) -> None:
    assert value_fault(value)


@pytest.mark.parametrize("value", ["", "max-age=1; includeSubDomains", "«ü»"])
def test_values_of_one_line_may_be(value: str) -> None:
    assert not value_fault(value)
