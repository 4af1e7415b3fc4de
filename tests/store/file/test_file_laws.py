"""The laws of purging, over a directory that two nodes share."""

import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import rule

from examples import examples
from store.model import Laws, Node, tier_over
from univocal.store.file.directory import Directory
from univocal.store.file.entries import FileEntries
from univocal.store.file.ring import FilePurges
from univocal.store.purge_selectors import Keys, Tags


class FileLaws(Laws):
    """A purge is in force at all nodes of the machine when it is confirmed."""

    lag = 0.0

    def __init__(self):
        self.directory = tempfile.TemporaryDirectory()
        super().__init__()

    async def new_node(self, number):
        path = Path(self.directory.name) / "store"
        directory = Directory(path, is_durable=False, capacity=16 << 10)
        entries, purges = FileEntries(directory, 64 << 20), FilePurges(directory.ring)
        tier = tier_over(entries, purges, self.clock, max_bytes=2_000)  # for one response
        await tier.start()
        return Node(tier, purges, entries)

    @rule(number=st.integers(0, 1), by_tag=st.booleans(), count=st.sampled_from([5, 40, 90]))
    def purge_others(self, number, by_tag, count):
        """Purge what is not stored, so that the journal forgets what was purged before."""
        tier = self.nodes[number].tier

        async def go():
            for each in range(count):
                name = frozenset((b"0123456789abcdef http a /other/%d" % each,))
                await tier.purge(Tags(name) if by_tag else Keys(name), self.now)

        self.run(go())
        self.look_around()

    async def stop(self, node):
        await node.tier.aclose()
        node.entries.directory.close()

    def teardown(self):
        super().teardown()
        self.directory.cleanup()


TestFileLaws = FileLaws.TestCase
TestFileLaws.settings = settings(max_examples=examples(24, part=6), stateful_step_count=20, deadline=None)
