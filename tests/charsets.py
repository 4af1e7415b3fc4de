"""Every character of a charset, for the tests of several rooms."""

from functools import cache

from univocal.uri.charset import decoded


@cache
def units(charset: str) -> dict[bytes, str]:
    """Every character of a charset, by its bytes."""
    pairs = [bytes([first, second]) for first in range(0x80, 0x100) for second in range(0x100)]
    triples = [b"\x8f" + pair for pair in pairs if pair[1] >= 0x80] if charset == "euc-jp" else []
    texts = {bytes([octet]): decoded(bytes([octet]), charset) for octet in range(0x80, 0x100)}
    texts |= {octets: decoded(octets, charset) for octets in pairs + triples if texts[octets[:1]] is None}
    return {octets: text for octets, text in texts.items() if text is not None}
