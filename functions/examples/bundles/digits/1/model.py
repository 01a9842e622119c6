"""A cascade: asks the cheap model first and the expensive one about the rows that the first is not sure of."""

import json

import numpy as np
import triton_python_backend_utils as pb_utils

WANTED = ["label", "probabilities"]


class TritonPythonModel:
    def initialize(self, args):
        parameters = json.loads(args["model_config"])["parameters"]
        self.threshold = float(parameters["threshold"]["string_value"])

    def execute(self, requests):
        """One call of the cheap model for the whole batch, whoever sent its rows, and at most one of the expensive one."""
        parts = [pb_utils.get_input_tensor_by_name(request, "pixels").as_numpy() for request in requests]
        rows = np.concatenate(parts)
        label, probability = best(ask_small(rows))
        unsure = probability[:, 0] < self.threshold
        if unsure.any():
            label[unsure], probability[unsure] = best(ask_big(rows[unsure]))
        ends = np.cumsum([len(part) for part in parts])[:-1]
        columns = (np.split(column, ends) for column in (label, probability, unsure[:, None]))
        return [answer(*part) for part in zip(*columns, strict=True)]


def ask_small(rows):
    pixels = pb_utils.Tensor("pixels", rows)
    return pb_utils.InferenceRequest(model_name="digits_small", inputs=[pixels], requested_output_names=WANTED).exec()


def ask_big(rows):
    pixels = pb_utils.Tensor("pixels", rows)
    return pb_utils.InferenceRequest(model_name="digits_big", inputs=[pixels], requested_output_names=WANTED).exec()


def best(response):
    """Label [n, 1] and its probability [n, 1]. Raises TritonModelException with what the callee said."""
    if response.has_error():
        raise pb_utils.TritonModelException(response.error().message())
    label, probabilities = (pb_utils.get_output_tensor_by_name(response, name).as_numpy() for name in WANTED)
    return label.copy(), probabilities.max(axis=1, keepdims=True)  # a copy, because the callee's answer is not ours to change


def answer(label, probability, escalated):
    return pb_utils.InferenceResponse(
        [pb_utils.Tensor("label", label), pb_utils.Tensor("probability", probability), pb_utils.Tensor("escalated", escalated)]
    )
