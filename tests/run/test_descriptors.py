"""Descriptors are divided: clients never get what the admin listener and the origin servers need."""

import resource

from examples import cases
from univocal_app.run.listeners import raise_limit, share


@cases(
    "limit, origins, wanted, workers, clients, kept",
    (1024, 1000, 0, 1, 480, 480),
    (1024, 100, 0, 1, 860, 100),
    (1024, 1000, 50, 1, 50, 480),
    (1024, 1000, 5000, 1, 480, 480),  # there are no more
    (1024, 1000, 50, 4, 13, 480),  # all workers together
    (1_048_576, 1000, 0, 1, 1_047_512, 1000),
    (64, 1000, 0, 1, 1, 1),
)
def test_descriptors_are_shared_among_clients_and_origin_servers(
    limit, origins, wanted, workers, clients, kept
):
    assert share(limit, origins, wanted, workers) == (clients, kept, limit)


def test_the_soft_limit_is_raised_to_the_hard_one():
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(256, before[1]), before[1]))
        raised = raise_limit()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (before[1], before[1])
        assert raised == before[1] or before[1] == resource.RLIM_INFINITY
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
