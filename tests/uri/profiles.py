"""The built-in profiles, and one's own, for tests of this room."""

from univocal.judge.profiles import builtin_profiles
from univocal.uri.profile import Profile, parse

BUILT_IN = builtin_profiles()


def own(settings: str, base: str = "") -> Profile:
    """The profile with these settings, which may extend a built-in one."""
    return parse({"own": f'extends = "{base}"\n{settings}' if base else settings}, BUILT_IN)["own"]
