"""Networks as nginx's rules and univocal's tables have them, and the access that is closed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from ipaddress import IPv4Network, IPv6Network, collapse_addresses, ip_network
from typing import Any, Final, TypeAlias

Net: TypeAlias = IPv4Network | IPv6Network
ALL: Final[Sequence[Net]] = (IPv4Network("0.0.0.0/0"), IPv6Network("::/0"))

# No client has this access.
CLOSED: Final[dict[str, Any]] = {"deny": ["0.0.0.0/0", "::/0"]}


def closed_beside(access: Mapping[str, Any]) -> dict[str, Any]:
    """Access for no client, beside the rules that hold once its `deny` is taken away."""
    kept = {key: value for key, value in access.items() if key != "deny"}
    denied = access.get("deny", [])
    if denied and "allow" not in kept and denied != CLOSED["deny"]:
        taken = [ip_network(each) for each in denied]
        kept["allow"] = written([part for each in ALL for part in without(each, taken)])
    return {**kept, **CLOSED}


def common(net: Net, among: Iterable[Net]) -> Iterator[Net]:
    for each in among:
        if each.version == net.version and each.overlaps(net):
            yield net if net.prefixlen >= each.prefixlen else each


def without(net: Net, taken: Iterable[Net]) -> list[Net]:
    left = [net]
    for each in taken:
        kept: list[Net] = []
        for part in left:
            if part.version != each.version or not part.overlaps(each):
                kept.append(part)
            elif each.prefixlen > part.prefixlen:
                kept.extend(part.address_exclude(each))  # type: ignore[arg-type]  # one version, as asked above
        left = kept
    return left


def written(nets: Sequence[Net]) -> list[str]:
    four = collapse_addresses(each for each in nets if isinstance(each, IPv4Network))
    six = collapse_addresses(each for each in nets if isinstance(each, IPv6Network))
    return [str(each) for each in (*four, *six)]
