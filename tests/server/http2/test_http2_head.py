"""A request's head from fields that nobody has checked: what is malformed, and what becomes of the rest."""

import pytest

from http2_client import GET
from univocal.server.http2.fields import head_of, is_trailer_section

HOST = (b"host", b"en.example")


@pytest.mark.parametrize(
    ("more", "fields"),
    [
        ([], [HOST]),
        ([(b"x", b"1"), (b"x", b"2")], [HOST, (b"x", b"1"), (b"x", b"2")]),
        (
            [(b"cookie", b"a=1"), (b"x", b""), (b"cookie", b"b=2")],
            [HOST, (b"cookie", b"a=1; b=2"), (b"x", b"")],
        ),
        ([(b"a", b"1"), (b"host", b"EN.example")], [HOST, (b"a", b"1")]),
        ([(b"te", b"Trailers")], [HOST, (b"te", b"Trailers")]),
        ([(b"x", b"\xff\t~")], [HOST, (b"x", b"\xff\t~")]),
    ],
)
def test_fields_are_those_that_http_1_would_have(more, fields):
    head = head_of([*GET, *more])
    assert (head.method, head.target, head.fields) == (b"GET", b"/", fields)
    assert (head.reasons, head.is_malformed) == ((), False)


@pytest.mark.parametrize(
    ("length", "number"), [(b"0", 0), (b"12", 12), (b"-1", None), (b"1" * 30, None), (b"x", None)]
)
def test_a_length_is_a_number_or_none(length, number):
    assert head_of([*GET, (b"content-length", length)]).length == number


@pytest.mark.parametrize(
    ("more", "is_malformed"),
    [
        ([(b"content-length", b"5")], False),
        ([(b"content-length", b"5")] * 2, False),
        ([(b"content-length", b"x")], True),
        ([(b"content-length", b"5"), (b"content-length", b"6")], True),
        ([(b"content-length", b"5"), (b"te", b"trailers"), (b"content-length", b"")], True),
        ([(b":status", b"100")], True),
        ([(b":status", b"200"), (b"content-length", b"5")], True),
    ],
)
def test_a_request_has_one_length_and_no_status(more, is_malformed):
    pseudo = [field for field in more if field[0][:1] == b":"]
    head = head_of([*GET, *pseudo, *[field for field in more if field not in pseudo]])
    assert (head.is_malformed, head.reasons) == (is_malformed, ("bad-framing",) * is_malformed)


def test_without_content_length_there_is_no_length():
    assert head_of(GET).length is None


@pytest.mark.parametrize("many", [2, 400])
def test_long_lists_of_names_are_judged_as_short_ones(many):
    names = [(b"x-%d" % number, b"") for number in range(many)]
    assert not head_of([*GET, *names]).is_malformed
    assert head_of([*GET, *names, (b"Upper", b"")]).is_malformed
    assert head_of([*GET, *names, (b":path", b"/")]).is_malformed


@pytest.mark.parametrize(
    ("fields", "is_one"),
    [
        ([(b"x", b"y")], True),
        ([], True),
        ([(b":path", b"/")], False),
        ([(b"X", b"")], False),
        ([(b"te", b"")], True),
        ([(b"content-length", b"5")], True),
        ([(b"content-length", b"x")], False),
    ],
)
def test_trailers_have_no_pseudo_header_field(fields, is_one):
    assert is_trailer_section(fields) is is_one
