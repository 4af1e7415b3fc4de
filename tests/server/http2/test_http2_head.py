"""A request's head from fields that nobody has checked: what is malformed, and what becomes of the rest."""

import pytest

from http2_client import GET
from univocal.server.http2.fields import head_of


@pytest.mark.parametrize(
    ("length", "number"), [(b"0", 0), (b"12", 12), (b"-1", None), (b"1" * 30, None), (b"x", None)]
)
def test_a_length_is_a_number_or_none(length, number):
    assert head_of([*GET, (b"content-length", length)]).length == number


def test_without_content_length_there_is_no_length():
    assert head_of(GET).length is None
