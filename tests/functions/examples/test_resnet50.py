from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime

from functions.examples import resnet50
from tests.functions.examples.driver import Driver

INPUT, OUTPUT = "gpu_0/data_0", "gpu_0/softmax_1"


def test_the_probe_is_answered_as_the_onnx_package_expects(driver: Driver) -> None:
    answer = driver.call("resnet50", {INPUT: resnet50.probe()})[OUTPUT]

    np.testing.assert_allclose(answer, resnet50.expected(), rtol=1e-3, atol=1e-7)


def test_a_batch_is_answered_row_by_row_as_the_shipped_model_answers_one(driver: Driver) -> None:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # the shipped file carries a weight that nothing uses
    shipped = onnxruntime.InferenceSession(str(resnet50.SHIPPED), options)
    pictures = np.random.default_rng(0).random((3, 3, 224, 224), np.float32)
    answer = driver.call("resnet50", {INPUT: pictures})[OUTPUT]

    assert answer.shape == (3, 1000)
    for row, picture in zip(answer, pictures, strict=True):
        np.testing.assert_allclose(row[None], shipped.run([OUTPUT], {INPUT: picture[None]})[0], rtol=1e-5)


def test_there_is_one_label_a_class(repository: Path) -> None:
    labels = (repository / "resnet50/labels.txt").read_text().splitlines()

    assert len(labels) == 1000
    assert (labels[0], labels[281], labels[999]) == ("tench", "tabby cat", "toilet paper")
