"""Questions that every process answers."""

import asyncio

from univocal_app.observe.survey import Survey, summed


class Others:
    """Other processes, which answer when they are let."""

    def __init__(self):
        self.asked = []
        self.answer = asyncio.Event()

    async def rows(self, about, shape):
        self.asked.append((about, shape))
        await self.answer.wait()
        return [(b"other", 2)]


async def test_a_process_alone_answers_by_itself():
    survey = Survey()
    survey.add("keys", "bn", lambda: iter([(b"a", 1)]))
    assert await survey.rows("keys") == survey.own("keys") == [(b"a", 1)]
    assert survey.own("unknown") == []


async def test_the_rows_of_others_are_behind_its_own():
    survey, others = Survey(), Others()
    survey.add("keys", "bn", lambda: [(b"a", 1)])
    survey.others = others.rows
    others.answer.set()
    assert await survey.rows("keys") == [(b"a", 1), (b"other", 2)]


async def test_concurrent_questions_share_one_answer():
    survey, others = Survey(), Others()
    survey.add("keys", "bn", list)
    survey.add("other", "n", list)
    survey.others = others.rows
    asking = [asyncio.create_task(survey.rows("keys")) for _ in range(3)]
    other = asyncio.create_task(survey.rows("other"))
    await asyncio.sleep(0)
    asking[0].cancel()  # its client has left
    await asyncio.sleep(0)
    others.answer.set()
    assert [await each for each in asking[1:]] == [[(b"other", 2)]] * 2
    await other
    assert others.asked == [("keys", "bn"), ("other", "n")]
    await survey.rows("keys")
    assert others.asked == [("keys", "bn"), ("other", "n"), ("keys", "bn")]


def test_numbers_are_added_up_for_what_stands_before_them():
    assert summed([(b"a", b"x", 1), (b"b", b"x", 5), (b"a", b"x", 2)]) == {(b"a", b"x"): 3, (b"b", b"x"): 5}
