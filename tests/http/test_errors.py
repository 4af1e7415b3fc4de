"""Reasons for which a request is refused, and their order."""

import pytest

from univocal.http.errors import REASONS, ConfigurationError, ProfileError, RefusedError, by_rank, status_of


def test_of_several_reasons_the_table_says_which_comes_first():
    assert by_rank(["unknown-host", "dot-segment", "bad-host", "dot-segment"]) == (
        "bad-host",
        "dot-segment",
        "unknown-host",
    )
    limits = ["too-many-requests", "fields-too-large", "unknown-host"]
    assert by_rank(reversed(limits)) == tuple(limits)
    assert by_rank(REASONS) == tuple(REASONS)
    with pytest.raises(KeyError):
        by_rank(["no-such-reason"])


def test_a_rejection_has_its_reasons_status_and_ranked_reasons():
    refused = RefusedError("above-root", ["bad-host"])
    assert (refused.status, refused.reason, refused.reasons) == (
        400,
        "above-root",
        ("bad-host", "above-root"),
    )
    assert status_of("unknown-host") == 421
    assert {status // 100 for status, _ in REASONS.values()} == {4, 5}


def test_a_setting_that_cannot_be_says_where_it_stands():
    error = ProfileError("a.toml", "path.ring", 3, "a ring")
    assert str(error) == "a.toml: path.ring: found 3; allowed: a ring"
    assert str(ConfigurationError("a.toml", "", 3, "a table")) == "a.toml: found 3; allowed: a table"
