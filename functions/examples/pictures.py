"""Real pictures, out of the packages that ship them; found without importing those packages."""

from __future__ import annotations

import importlib.util
from pathlib import Path

PAGE_TEXT = (
    "Region-based segmentation",
    "Let us first determine markers of the coins and the",
    "background. These markers are pixels that we can label",
    "unambiguously as either object or background. Here,",
    "the markers are found at the two extreme parts of the",
    "histogram of grey values:",
    ">>> markers = np.zeros_like(coins)",
)
"""What a person reads on the page, line by line."""


def page() -> Path:
    """A photograph of a printed page, unevenly lit (scikit-image): 384 × 191 pixels, grey, PNG."""
    return shipped("skimage", "data/page.png")


def photo() -> Path:
    """A rocket on its launch pad at night, nothing to read (scikit-image): 640 × 427 pixels, colour, JPEG."""
    return shipped("skimage", "data/rocket.jpg")


def shipped(package: str, path: str) -> Path:
    """A file inside an installed package. Raises ModuleNotFoundError."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(f"{package} is not installed; the extra despina[examples] brings it", name=package)
    return Path(spec.origin).parent / path
