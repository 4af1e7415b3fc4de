"""What is said of a message's content, to the application behind the middleware and to its client."""

import pytest


@pytest.mark.parametrize("lines", [[b"4", b"5"], [b"4, 5"], [b"x"], [b"1000000000000000000"]])
async def test_a_response_with_two_lengths_is_none(cached, application, lines):
    application.fields = [(b"cache-control", b"max-age=60"), *((b"content-length", line) for line in lines)]
    application.body = b"page"
    answer = await cached()("/a")
    assert (answer.status, answer.problem["reason"]) == (502, "origin-bad-response")
