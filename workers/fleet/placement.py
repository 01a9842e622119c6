"""Which node holds how many replicas of a version. Pure, and the same in every client without talking to each other."""

from __future__ import annotations

import hashlib
from collections.abc import Collection

from functions.names import Ref


def place(ref: Ref, count: int, nodes: Collection[str], full: Collection[str] = ()) -> dict[str, int]:
    """Node id → replicas, 0 for those that hold none: dealt one by one, in an order that each version has for itself (rendezvous
    hashing), so a node that comes or goes moves only its own share. Nodes in ``full`` refused for lack of capacity and get some
    only when all have."""
    order = sorted(nodes, key=lambda node: hashlib.blake2b(f"{ref}\0{node}".encode(), digest_size=8).digest())
    free = [node for node in order if node not in full] or order
    shares = dict.fromkeys(order, 0)
    for dealt in range(count if free else 0):
        shares[free[dealt % len(free)]] += 1
    return shares
