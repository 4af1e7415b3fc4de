"""What a profile's settings do at the door: tags from paths, declared charsets, lossy queries."""

import pytest

from univocal import ProfileError
from univocal.uri.profile import parse

# A profile's rules


def test_middleware_with_invalid_profile_rules_is_not_made(cached):
    profile = parse({"blog": "[cache]\nttl = 'long'"})["blog"]
    with pytest.raises(ProfileError, match=r"profile blog: cache\.ttl"):
        cached(profile)
