from __future__ import annotations

from workers.fleet.window import Window


def test_the_mean_is_over_what_was_seen_in_the_span_and_nothing_is_not_zero() -> None:
    window = Window().add(1.0, 2.0, 60.0).add(2.0, 4.0, 60.0).add(3.0, 6.0, 60.0)

    assert 4.0 == window.mean(3.0, 60.0)
    assert 5.0 == window.mean(3.0, 2.0)
    assert window.mean(100.0, 60.0) is None
    assert Window().mean(1.0, 60.0) is None


def test_old_samples_are_dropped() -> None:
    window = Window()
    for second in range(200):
        window = window.add(float(second), 1.0, 60.0)

    assert 60 == len(window.samples)


def test_the_last_call_is_remembered_and_never_moves_back() -> None:
    window = Window().add(10.0, 0.0, 60.0)

    assert window.active_at is None
    assert 9.0 == window.add(10.0, 0.0, 60.0, 1.0).active_at
    assert 9.0 == window.add(10.0, 0.0, 60.0, 1.0).add(11.0, 0.0, 60.0, 5.0).active_at
