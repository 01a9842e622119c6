"""The two models of the ``digits`` cascade, and the digits themselves: scikit-learn's 1,797 scans of 8 × 8 pixels."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import NamedTuple

import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.svm import SVC

OPSET = 21


class Digits(NamedTuple):
    """Rows of 64 pixels in [0, 1] (float32), and which digit each row shows."""

    pixels: np.ndarray
    labels: np.ndarray


def split() -> tuple[Digits, Digits]:
    """1,078 digits to learn from and 719 held out, the same ones everywhere."""
    pixels, labels = load_digits(return_X_y=True)
    parts = train_test_split((pixels / 16).astype(np.float32), labels, test_size=0.4, stratify=labels, random_state=0)
    return Digits(parts[0], parts[2]), Digits(parts[1], parts[3])


def small(_packages: Path, bundle: Path) -> None:
    """Logistic regression, regularised until it is honest about what it does not know."""
    save(LogisticRegression(C=0.02, max_iter=1000), bundle)


def big(_packages: Path, bundle: Path) -> None:
    """A support vector machine with 437 support vectors."""
    save(SVC(C=10, gamma=0.05, probability=True, random_state=0), bundle)


def save(classifier: LogisticRegression | SVC, bundle: Path) -> None:
    """Train on the first part and write ``1/model.onnx`` with outputs ``label`` and ``probabilities``."""
    import skl2onnx  # here, because whoever only wants the digits need not wait for it

    train, _ = split()
    with warnings.catch_warnings():
        # scikit-learn 1.9, which is pinned, announces that 1.11 will move Platt's probabilities into a class of their own.
        warnings.simplefilter("ignore", FutureWarning)
        classifier.fit(train.pixels, train.labels)
        model = skl2onnx.to_onnx(
            classifier,
            initial_types=[("pixels", skl2onnx.common.data_types.FloatTensorType([None, 64]))],
            options={id(classifier): {"zipmap": False}},
            target_opset=OPSET,
        )
    # skl2onnx lists them in the order of a set: sorted, the same training gives the same bytes, hence the same version.
    opsets = sorted(((opset.domain, opset.version) for opset in model.opset_import), reverse=True)
    del model.opset_import[:]
    for domain, version in opsets:
        model.opset_import.add(domain=domain, version=version)
    (bundle / "1/model.onnx").write_bytes(model.SerializeToString())
