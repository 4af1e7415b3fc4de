"""docs/library.md: every example runs, and what it says comes out does."""

import ast
import asyncio
import inspect
import re

EXPECTED = re.compile(r"^( *)(\S.*?)  # → (.*)$", re.MULTILINE)


def test_every_example_runs(root):
    text = (root / "docs" / "library.md").read_text("utf-8")
    examples = "\n".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL))
    found = []
    namespace = {"came_out": lambda value, said: found.append((str(value), said))}
    source = EXPECTED.sub(r'\1came_out(\2, """\3""")', examples)
    code = compile(source, "library.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)

    async def run() -> None:
        if inspect.isawaitable(waiting := eval(code, namespace)):
            await waiting

    asyncio.run(run())
    assert len(found) == text.count("# →") - 1  # the sentence that explains the sign has one, too
    assert [value for value, _ in found] == [said for _, said in found]
