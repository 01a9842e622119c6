from __future__ import annotations

import cv2
import pytest

from functions.examples import pictures


def test_the_pictures_are_there_and_are_pictures() -> None:
    assert (191, 384, 3) == cv2.imread(str(pictures.page())).shape
    assert (427, 640, 3) == cv2.imread(str(pictures.photo())).shape


def test_a_package_that_is_missing_is_named_with_the_extra_that_brings_it() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"no_such_package is not installed; the extra despina\[examples\] brings it"):
        pictures.shipped("no_such_package", "x.png")
