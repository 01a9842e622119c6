"""Gives back what it gets."""

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [answer(request) for request in requests]


def answer(request):
    rows = pb_utils.get_input_tensor_by_name(request, "INPUT").as_numpy()
    return pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT", rows)])
