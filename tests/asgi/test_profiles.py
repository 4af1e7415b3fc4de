"""What a profile's settings do at the door: tags from paths, declared charsets, lossy queries."""

from __future__ import annotations

import pytest

from univocal import ProfileError
from univocal.judge.profiles import builtin_profiles
from univocal.uri.profile import Profile, parse


def profile_of(text: str) -> Profile:
    return parse({"own": text}, builtin_profiles())["own"]


@pytest.mark.parametrize(
    "text",
    [
        '[[tags]]\nfrom = "a{99999999999}"\nto = "b"',
        "a = " + "[" * 3000,
        '[[tags]]\nfrom = "' + "(" * 3000 + '"\nto = "b"',
    ],
)
def test_a_profile_that_nobody_can_read_is_one_message(text: str) -> None:
    with pytest.raises(ProfileError):
        profile_of(text)


# A profile's rules


def test_middleware_with_invalid_profile_rules_is_not_made(cached):
    profile = parse({"blog": "[cache]\nttl = 'long'"})["blog"]
    with pytest.raises(ProfileError, match=r"profile blog: cache\.ttl"):
        cached(profile)
