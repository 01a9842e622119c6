"""Decodes a picture and prepares it for the text detector."""

import base64
import binascii
import json

import cv2
import numpy as np
import triton_python_backend_utils as pb_utils

MULTIPLE = 32  # the detector halves its input five times


class TritonPythonModel:
    def initialize(self, args):
        parameters = json.loads(args["model_config"])["parameters"]
        self.short_side = int(parameters["short_side"]["string_value"])
        self.long_side = int(parameters["long_side"]["string_value"])

    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        encoded = pb_utils.get_input_tensor_by_name(request, "IMAGE").as_numpy()[0]
        picture = decode(encoded)
        if picture is None:
            message = f"IMAGE holds {len(encoded)} bytes that are no picture in a format this function reads (PNG, JPEG, WebP, BMP, TIFF)"
            return pb_utils.InferenceResponse(error=pb_utils.TritonError(message, pb_utils.TritonError.INVALID_ARG))
        height, width = detector_size(picture.shape[:2], self.short_side, self.long_side)
        pixels = normalise(cv2.resize(picture, (width, height)))
        return pb_utils.InferenceResponse([pb_utils.Tensor("PICTURE", picture), pb_utils.Tensor("PIXELS", pixels)])


def decode(encoded):
    """Rows × columns × BGR, or None where the bytes are not a picture. JSON has no raw bytes, so base64 text is a picture too."""
    try:
        if encoded.isascii():
            encoded = base64.b64decode(encoded, validate=True)
        return cv2.imdecode(np.frombuffer(encoded, np.uint8), cv2.IMREAD_COLOR)
    except (cv2.error, binascii.Error):  # empty, or larger than OpenCV agrees to decode; text that is not base64
        return None


def detector_size(size, short_side, long_side):
    """The height and width to detect text at."""
    scale = min(max(1.0, short_side / min(size)), long_side / max(size))
    return [max(MULTIPLE, round(side * scale / MULTIPLE) * MULTIPLE) for side in size]


def normalise(picture):
    """uint8 rows × columns × channels -> float32 [1, channels, rows, columns] in [-1, 1]."""
    return np.ascontiguousarray(picture.transpose(2, 0, 1)[None], dtype=np.float32) / 127.5 - 1.0
