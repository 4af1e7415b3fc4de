"""The share of `max_bytes` that a process has in its own memory."""

from examples import cases
from univocal_app.config.tables import validate
from univocal_app.run.configured import memory_bounds

MIB = 1 << 20
SITE = {"hosts": ["*"], "upstream": "http://127.0.0.1:1"}


@cases(
    "store, workers, most, of_one, bounds",
    ("memory", 1, 256, 16, (256, 16)),
    ("memory", 2, 256, 16, (16, 16)),
    ("memory", 4, 256, 16, (8, 16)),  # larger responses are in the shared store alone
    ("memory", 64, 256, 16, (4, 16)),
    ("memory", 2, 2, 16, (2, 2)),
    ("redis://127.0.0.1/0", 4, 256, 16, (256, 16)),
    ("file:///var/cache/univocal", 4, 256, 16, (256, 16)),
)
def test_workers_that_share_memory_have_a_part_each(store, workers, most, of_one, bounds):
    cache = {"store": store, "max_bytes": most * MIB, "max_object_bytes": of_one * MIB}
    configuration = validate({"server": {"workers": workers}, "cache": cache, "sites": [SITE]}, "test")
    assert memory_bounds(configuration) == (bounds[0] * MIB, bounds[1] * MIB)
