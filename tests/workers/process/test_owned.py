import numpy as np

from workers.process.owned import own


def test_a_fresh_array_is_passed_on_as_it_is() -> None:
    outputs = {"y": np.zeros(4)}
    address = outputs["y"].ctypes.data

    own(outputs)

    assert address == outputs["y"].ctypes.data


def test_an_array_that_somebody_holds_is_copied() -> None:
    held = np.zeros(4)
    outputs = {"y": held}

    own(outputs)
    held[:] = 7

    assert [0, 0, 0, 0] == outputs["y"].tolist()


def test_a_view_of_a_held_array_is_copied() -> None:
    held = np.zeros(4)
    outputs = {"y": held[None, :2]}

    own(outputs)
    held[:] = 7

    assert [[0, 0]] == outputs["y"].tolist()


def test_a_view_that_is_the_only_holder_is_passed_on() -> None:
    outputs = {"y": np.zeros(4)[None]}
    address = outputs["y"].ctypes.data

    own(outputs)

    assert address == outputs["y"].ctypes.data
