from __future__ import annotations

from functions.protocol.recent import Recent


def test_the_least_recently_used_goes_first() -> None:
    recent: Recent[int] = Recent(max_entries=2, max_bytes=100)
    recent.put(b"a", 1)
    recent.put(b"b", 2)
    recent.get(b"a")
    recent.put(b"c", 3)

    assert (1, None, 3) == (recent.get(b"a"), recent.get(b"b"), recent.get(b"c"))


def test_bytes_are_bounded_and_counted_once_a_key() -> None:
    recent: Recent[int] = Recent(max_entries=10, max_bytes=8)
    for key in (b"aaaa", b"aaaa", b"bbbb", b"cccc"):
        recent.put(key, 1)

    assert (2, 8) == (len(recent), recent.size_bytes)
    assert recent.get(b"aaaa") is None


def test_a_key_over_the_bound_displaces_nothing() -> None:
    recent: Recent[int] = Recent(max_entries=10, max_bytes=4)
    recent.put(b"a", 1)
    recent.put(b"x" * 5, 2)

    assert (1, None) == (recent.get(b"a"), recent.get(b"x" * 5))
