"""The part of a stored response that is sent (RFC 9110 §13, §14; RFC 9111 §4.3.2)."""

import pytest

from examples import cases
from support import NOW, stored_response
from univocal.cache.ranges import MAX_RANGES, excessive
from univocal.cache.represent import not_modified, represent
from univocal.http.messages import Request, Response, imf_fixdate, values

MODIFIED = imf_fixdate(NOW - 3000)
BODY = b"0123456789"


def stored(*more, **settings):
    return stored_response((b"date", imf_fixdate(NOW)), (b"a", b"1"), *more, **settings)


def shown(found, *fields, method=b"GET"):
    answer = represent(Request(method, b"/a", list(fields)), found, 7, NOW)
    assert len(answer.fields) == len(dict(answer.fields))
    return answer.status, dict(answer.fields), answer.body


def test_a_plain_request_gets_the_response_with_its_age():
    status, fields, body = shown(stored((b"set-cookie2", b"x")))
    assert (status, body) == (200, BODY)
    assert fields == {
        b"cache-control": b"max-age=60",
        b"date": imf_fixdate(NOW),
        b"a": b"1",
        b"set-cookie2": b"x",
        b"content-length": b"10",
        b"age": b"7",
    }


def test_a_head_gets_the_fields_alone():
    status, fields, body = shown(stored(), method=b"HEAD")
    assert (status, fields[b"content-length"], body) == (200, b"10", b"")
    assert shown(stored(), (b"range", b"bytes=0-1"), method=b"HEAD")[0] == 200


TAGGED = (b"etag", b'"abc"')
WEAK = (b"etag", b'W/"abc"')
DATED = (b"last-modified", MODIFIED)


@cases(
    "more, fields, status",
    ([TAGGED], [(b"if-none-match", b'"abc"')], 304),
    ([TAGGED], [(b"if-none-match", b'W/"abc"')], 304),
    ([WEAK], [(b"if-none-match", b'W/"abc"')], 304),
    ([WEAK], [(b"if-none-match", b'"abc"')], 304),
    ([TAGGED], [(b"if-none-match", b'"abc", "1", "2"')], 304),
    ([TAGGED], [(b"if-none-match", b'"1", "abc", "2"')], 304),
    ([TAGGED], [(b"if-none-match", b'"1", "2"'), (b"if-none-match", b'"abc"')], 304),
    ([TAGGED], [(b"if-none-match", b"*")], 304),
    ([], [(b"if-none-match", b"*")], 304),
    ([TAGGED], [(b"if-none-match", b'"ABC"')], 200),
    ([TAGGED], [(b"if-none-match", b"abc")], 200),
    ([], [(b"if-none-match", b'"abc"')], 200),
    # If-None-Match takes precedence
    ([TAGGED, DATED], [(b"if-none-match", b'"abc"'), (b"if-modified-since", imf_fixdate(NOW - 10_000))], 304),
    ([TAGGED, DATED], [(b"if-none-match", b'"x"'), (b"if-modified-since", MODIFIED)], 200),
    ([DATED], [(b"if-modified-since", MODIFIED)], 304),
    ([DATED], [(b"if-modified-since", imf_fixdate(NOW - 2000))], 304),
    ([DATED], [(b"if-modified-since", imf_fixdate(NOW - 3001))], 200),
    ([DATED], [(b"if-modified-since", b"yesterday")], 200),
    ([DATED], [(b"if-modified-since", MODIFIED), (b"if-modified-since", MODIFIED)], 200),
    (
        [(b"last-modified", b"Sunday, 06-Nov-94 08:49:37 GMT")],
        [(b"if-modified-since", b"Sun Nov  6 08:49:37 1994")],
        304,
    ),
    # without Last-Modified the Date counts
    ([], [(b"if-modified-since", imf_fixdate(NOW))], 304),
    ([], [(b"if-modified-since", imf_fixdate(NOW - 1))], 200),
)
def test_a_client_that_has_it_is_told_so(more, fields, status):
    found = stored(*more, (b"content-type", b"text/plain"), (b"content-location", b"/x"))
    for method in (b"GET", b"HEAD"):
        got, answered, body = shown(found, *fields, method=method)
        assert got == status
        if status == 304:
            assert body == b""
            assert not {b"content-type", b"content-length"} & answered.keys()
            assert {b"date", b"cache-control", b"age", b"content-location"} <= answered.keys()
            assert answered.get(b"etag") == dict(more).get(b"etag")


@pytest.mark.parametrize("status", [301, 404, 500])
def test_conditions_and_ranges_are_for_successes(status):
    found = stored(TAGGED, DATED, status=status, errors="explicit")
    assert shown(found, (b"if-none-match", b'"abc"'))[0] == status
    assert shown(found, (b"range", b"bytes=0-1"))[0] == status


@cases(
    "spec, status, placed, body",
    (b"bytes=0-1", 206, b"bytes 0-1/10", b"01"),
    (b"bytes=1-", 206, b"bytes 1-9/10", b"123456789"),
    (b"bytes=-1", 206, b"bytes 9-9/10", b"9"),
    (b"bytes=-99", 206, b"bytes 0-9/10", BODY),
    (b"bytes=9-99", 206, b"bytes 9-9/10", b"9"),
    (b"Bytes = 0-0", 206, b"bytes 0-0/10", b"0"),
    (b"bytes=0-1, 1-3", 206, b"bytes 0-3/10", b"0123"),
    (b"bytes=0-1,2-3", 206, b"bytes 0-3/10", b"0123"),
    (b"bytes=0-1, 2-,-2", 206, b"bytes 0-9/10", BODY),
    (b"bytes=0-1,99-", 206, b"bytes 0-1/10", b"01"),
    (b"bytes=0-" + b",0-" * (MAX_RANGES - 1), 206, b"bytes 0-9/10", BODY),
    (b"bytes=10-", 416, b"bytes */10", b""),
    (b"bytes=-0", 416, b"bytes */10", b""),
    (b"bytes=99-100,-0", 416, b"bytes */10", b""),
    # not understood, or too much: as if it were not there
    *((each, 200, None, BODY) for each in (b"bytes=0-" + b",0-" * MAX_RANGES, b"bytes=1-0", b"bytes=")),
    *((each, 200, None, BODY) for each in (b"bytes=-", b"bytes=0-1,", b"bytes=+0-1", b"bytes=0x0-1")),
    *((each, 200, None, BODY) for each in (b"bytes 0-1", b"chapters=1-2", b"bytes=" + b"9" * 30 + b"-")),
)
def test_a_range_is_answered_in_part_or_whole(spec, status, placed, body):
    found = stored((b"content-type", b"text/plain"))
    got, fields, content = shown(found, (b"range", spec))
    assert (got, fields.get(b"content-range"), content) == (status, placed, body)
    assert fields[b"content-length"] == b"%d" % len(body)
    assert fields[b"a"] == b"1"
    assert (b"content-type" in fields) is (status != 416)
    assert shown(found, (b"range", spec), (b"range", spec))[0] == 200


def test_so_many_ranges_are_not_passed_on():
    assert excessive([(b"range", b"bytes=" + b"0-0," * MAX_RANGES)])
    assert not excessive([(b"range", b"bytes=" + b"0-0," * (MAX_RANGES - 1))])


def test_two_range_fields_are_none():
    assert shown(stored(), (b"range", b"bytes=0-1"), (b"range", b"bytes=2-3"))[0] == 200


def test_a_stray_content_range_of_a_200_gives_way():
    found = stored((b"content-range", b"stray"))
    assert shown(found)[1][b"content-range"] == b"stray"
    assert shown(found, (b"range", b"bytes=0-1"))[1][b"content-range"] == b"bytes 0-1/10"


def test_several_ranges_are_parts():
    found = stored((b"content-type", b"text/plain"))
    status, fields, body = shown(found, (b"range", b"bytes=7-8,0-1,-1"))
    assert status == 206
    assert b"content-range" not in fields
    kind, _, boundary = fields[b"content-type"].partition(b"; boundary=")
    assert kind == b"multipart/byteranges"
    parts = bytes(body).split(b"--" + boundary)
    assert parts[0] == b""
    assert parts[1] == b"\r\ncontent-type: text/plain\r\ncontent-range: bytes 7-9/10\r\n\r\n789\r\n"
    assert parts[2] == b"\r\ncontent-type: text/plain\r\ncontent-range: bytes 0-1/10\r\n\r\n01\r\n"
    assert parts[3:] == [b"--\r\n"]
    assert fields[b"content-length"] == b"%d" % len(body)


@pytest.mark.parametrize("part", [False, True])
def test_a_range_is_a_view_of_what_is_stored(part):
    place = [(b"content-range", b"bytes 0-9/20")] if part else []
    found = stored(*place, status=206 if part else 200)
    answer = represent(Request(b"GET", b"/a", [(b"range", b"bytes=2-5")]), found, 7, NOW)
    assert answer.body.obj is found.body
    assert (bytes(answer.body), len(answer.body)) == (b"2345", 4)


@pytest.mark.parametrize(("last", "status"), [(524_287, 206), (524_288, 200)])
def test_large_ranges_are_not_put_together_anew(last, status):
    found = stored(body=bytes(2_000_000))
    got, fields, body = shown(found, (b"range", b"bytes=0-%d,1000000-1524287" % last))
    assert got == status
    assert (body is found.body) is (status == 200)
    assert fields[b"content-length"] == b"%d" % len(body)


def test_no_boundary_occurs_in_the_content():
    first = shown(stored(), (b"range", b"bytes=0-1,4-5"))[1][b"content-type"].partition(b"=")[2]
    hostile = stored(body=BODY + b"\r\n--" + first)
    second = shown(hostile, (b"range", b"bytes=0-1,4-5"))[1][b"content-type"].partition(b"=")[2]
    assert second not in hostile.body


@cases(
    "more, validator, status",
    ([TAGGED], b'"abc"', 206),
    ([TAGGED], b'"other"', 200),
    ([TAGGED], b'W/"abc"', 200),
    ([WEAK], b'W/"abc"', 200),
    ([DATED], MODIFIED, 206),
    ([DATED], imf_fixdate(NOW - 2000), 200),
    ([(b"last-modified", imf_fixdate(NOW))], imf_fixdate(NOW), 200),
    ([], b'"abc"', 200),
)
def test_if_range_is_a_strong_and_exact_match(more, validator, status):
    assert shown(stored(*more), (b"range", b"bytes=0-1"), (b"if-range", validator))[0] == status


@cases(
    "place, body, spec, placed, content",
    (b"bytes 4-9/10", b"456789", b"bytes=4-5", b"bytes 4-5/10", b"45"),
    (b"bytes 4-9/10", b"456789", b"bytes=6-", b"bytes 6-9/10", b"6789"),
    (b"bytes 4-9/10", b"456789", b"bytes=6-99", b"bytes 6-9/10", b"6789"),
    (b"bytes 4-9/10", b"456789", b"bytes=-2", b"bytes 8-9/10", b"89"),
    (b"bytes 0-4/*", b"01234", b"bytes=1-2", b"bytes 1-2/*", b"12"),
    # an origin that counts wrong: by its first octet, and from its last
    (b"bytes 4-9/10", b"01234", b"bytes=6-8", b"bytes 6-8/10", b"234"),
    (b"bytes 4-9/10", b"01234", b"bytes=6-", b"bytes 6-8/10", b"234"),
    (b"bytes 4-9/10", b"01234", b"bytes=-1", b"bytes 9-9/10", b"4"),
    (b"bytes 4-9/10", b"01234", b"bytes=-5", b"bytes 5-9/10", b"01234"),
)
def test_a_range_of_a_stored_part(place, body, spec, placed, content):
    found = stored((b"content-range", place), status=206, body=body)
    status, fields, got = shown(found, (b"range", spec))
    assert (status, fields[b"content-range"], got) == (206, placed, content)
    assert fields[b"content-length"] == b"%d" % len(content)


def test_a_stored_answer_to_a_head_keeps_its_length():
    found = stored((b"content-length", b"12345"), body=b"", method=b"HEAD")
    assert shown(found, method=b"HEAD")[1][b"content-length"] == b"12345"


def test_no_two_answers_share_fields_with_what_is_stored():
    found = stored()
    answer = represent(Request(b"GET", b"/a", []), found, 1, NOW)
    answer.fields.append((b"x", b"y"))
    assert values(found.fields, b"x") == []


@cases(
    "method, status, fields, asked, expected",
    (b"GET", 200, [TAGGED], [(b"if-none-match", b'"abc"')], 304),
    (b"HEAD", 200, [TAGGED], [(b"if-none-match", b'"abc"')], 304),
    (b"POST", 200, [TAGGED], [(b"if-none-match", b'"abc"')], None),
    (b"GET", 404, [TAGGED], [(b"if-none-match", b'"abc"')], None),
    (b"GET", 200, [TAGGED], [(b"if-none-match", b'"x"')], None),
    (b"GET", 200, [DATED], [(b"if-modified-since", MODIFIED)], 304),
    (b"GET", 200, [(b"date", MODIFIED)], [(b"if-modified-since", MODIFIED)], 304),
    (b"GET", 200, [], [(b"if-modified-since", MODIFIED)], None),
    (b"GET", 200, [TAGGED], [], None),
)
def test_a_clients_conditions_hold_for_what_has_just_come(method, status, fields, asked, expected):
    response = Response(status, [(b"content-type", b"text/plain"), *fields])
    told = not_modified(Request(method, b"/a", asked), response, NOW)
    assert (None if told is None else told.status) == expected
    if told is not None:
        assert told.fields == fields
