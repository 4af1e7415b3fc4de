"""The tables of charsets beside those of a browser and of Node, for every pair of bytes."""

import shutil

import pytest

from charsets import units
from tools.charsets.write import characters, read_by_chromium, read_by_node


def test_the_tables_are_those_of_a_browser():
    if shutil.which("chromium") is None:
        pytest.skip("needs chromium (Debian package chromium)")
    for name, texts in read_by_chromium().items():
        own = units(name)
        in_two = {octets for octets, text in own.items() if len(text) > 1}  # where Chromium gives half a pair
        assert in_two == ({b"\x88\x62", b"\x88\x64", b"\x88\xa3", b"\x88\xa5"} if name == "big5" else set())
        assert {octets: text for octets, text in own.items() if octets not in in_two} == characters(texts), (
            name
        )


# Bytes that Node's own decoders read otherwise than WHATWG's tables: they are ICU's.
OF_ICU = {
    "koi8-u": {b"\xae", b"\xbe"},
    "gbk": {
        bytes.fromhex(octets)
        for octets in ("a6d9", "a6da", "a6db", "a6dc", "a6dd", "a6de", "a6df", "a6ec", "a6ed", "a6f3")
    },
}


def test_the_tables_are_those_of_node():
    if shutil.which("node") is None:
        pytest.skip("needs node")
    for name, texts in read_by_node().items():
        if name in ("windows-1252", "big5", "euc-kr"):
            continue  # Latin-1, Big5 without Hong Kong's and KS X 1001 alone in some versions
        own = units(name)
        for octets, text in characters(texts).items():
            known = own.get(octets, text)
            is_private = any("\ue000" <= character <= "\uf8ff" for character in text)
            assert known == text or is_private or octets in OF_ICU.get(name, set()), (name, octets)
