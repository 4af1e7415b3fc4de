"""What is said of a message's content, to the application behind the middleware and to its client."""

import pytest


@pytest.mark.parametrize("said", ["1000000000000000000", "0000000000000000005", "5, 5", "x"])
async def test_a_length_that_is_none_is_refused(cached, application, said):
    answer = await cached()("/a", "POST", [("content-length", said)], [b"hello"])
    assert (answer.status, answer.problem["reason"]) == (400, "bad-framing")
    assert application.count == 0


@pytest.mark.parametrize("lines", [[b"04"], [b"4", b"4"], [b"4, 4"], [b"0004", b"0004"]])
async def test_the_client_is_told_a_plain_length(cached, application, lines):
    application.fields = [(b"cache-control", b"max-age=60"), *((b"content-length", line) for line in lines)]
    application.body = b"page"
    ask = cached()
    for _ in range(2):  # from the application, and from what is stored
        answer = await ask("/a")
        assert (answer.status, answer.body) == (200, b"page")
        assert [value for name, value in answer.fields if name == b"content-length"] == [b"4"]
    assert application.count == 1


@pytest.mark.parametrize("lines", [[b"4", b"5"], [b"4, 5"], [b"x"], [b"1000000000000000000"]])
async def test_a_response_with_two_lengths_is_none(cached, application, lines):
    application.fields = [(b"cache-control", b"max-age=60"), *((b"content-length", line) for line in lines)]
    application.body = b"page"
    answer = await cached()("/a")
    assert (answer.status, answer.problem["reason"]) == (502, "origin-bad-response")
