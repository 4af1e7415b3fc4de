"""The laws of purging, over a directory that two nodes share."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import settings

from examples import examples
from store.model import Laws, Node, tier_over
from univocal.store.file.directory import Directory
from univocal.store.file.entries import FileEntries
from univocal.store.file.purges import FilePurges


class FileLaws(Laws):
    """A purge is in force at all nodes of the machine when it is confirmed."""

    lag = 0.0

    def __init__(self) -> None:
        self.directory = tempfile.TemporaryDirectory()
        super().__init__()

    async def new_node(self, number: int) -> Node:
        directory = Directory(Path(self.directory.name) / "store", is_durable=False)
        entries, purges = FileEntries(directory, 64 << 20), FilePurges(directory.ring)
        tier = tier_over(entries, purges, self.clock)
        await tier.start()
        return Node(tier, purges, entries)

    async def stop(self, node: Node) -> None:
        await node.tier.aclose()
        assert isinstance(node.entries, FileEntries)
        node.entries.directory.close()

    def teardown(self) -> None:
        super().teardown()
        self.directory.cleanup()


TestFileLaws = FileLaws.TestCase
TestFileLaws.settings = settings(max_examples=examples(24), stateful_step_count=20, deadline=None)
