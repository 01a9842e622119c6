"""Reads the text in a picture: finds the lines, cuts them out, reads them in batches of similar width."""

import json

import cv2
import numpy as np
import triton_python_backend_utils as pb_utils

HEIGHT = 48  # what the recogniser was trained on
WIDTH_STEP = 64  # crops are padded to multiples of it, so that lines of several pictures can share a batch
UPRIGHT = 1.5  # a crop taller than this many times its width is a line of text that stands on end
WIDER = 1.5  # a batch holds no line wider than this many times its narrowest: padding is computed too


class CallFailed(Exception):
    """A callee answered an error; it goes to our caller as it is."""


class TritonPythonModel:
    def initialize(self, args):
        parameters = json.loads(args["model_config"])["parameters"]
        self.min_score = float(parameters["min_score"]["string_value"])
        self.batch = int(parameters["batch"]["string_value"])

    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        image = pb_utils.get_input_tensor_by_name(request, "IMAGE").as_numpy()
        try:
            picture, boxes = find(image)
            crops = [cut(picture, box) for box in boxes]
            batches = split([crop.shape[1] for crop in crops], self.batch)
            lines = [("", 0.0)] * len(crops)
            for batch in batches:
                for index, line in zip(batch, read([crops[index] for index in batch]), strict=True):
                    lines[index] = line
        except CallFailed as failure:
            return pb_utils.InferenceResponse(error=failure.args[0])
        kept = [index for index, (text, score) in enumerate(lines) if text and score >= self.min_score]
        return pb_utils.InferenceResponse(
            [
                pb_utils.Tensor("TEXT", np.array([lines[index][0].encode() for index in kept], dtype=object)),
                pb_utils.Tensor("BOXES", boxes[kept]),
                pb_utils.Tensor("SCORES", np.float32([lines[index][1] for index in kept])),
                pb_utils.Tensor("CALLS", np.int32([len(batches)])),
            ]
        )


def find(image):
    """The decoded picture, and a box around each line of text in it. Raises CallFailed."""
    request = pb_utils.InferenceRequest(
        model_name="detect_text",
        inputs=[pb_utils.Tensor("IMAGE", image)],
        requested_output_names=["PICTURE", "BOXES"],
    )
    return outputs(request.exec(), ["PICTURE", "BOXES"])


def cut(picture, box):
    """The box straightened, upright, HEIGHT pixels high."""
    width = max(1, round(max(np.linalg.norm(box[0] - box[1]), np.linalg.norm(box[3] - box[2]))))
    height = max(1, round(max(np.linalg.norm(box[0] - box[3]), np.linalg.norm(box[1] - box[2]))))
    corners = np.float32([[0, 0], [width, 0], [width, height], [0, height]])
    transform = cv2.getPerspectiveTransform(box.astype(np.float32), corners)
    crop = cv2.warpPerspective(picture, transform, (width, height), flags=cv2.INTER_CUBIC, borderMode=cv2.BORDER_REPLICATE)
    if height >= UPRIGHT * width:
        crop = np.rot90(crop)
    height, width = crop.shape[:2]
    return cv2.resize(crop, (max(1, round(width * HEIGHT / height)), HEIGHT))


def split(widths, limit):
    """Indices in batches of at most ``limit`` lines of similar width."""
    batches = []
    for index in sorted(range(len(widths)), key=widths.__getitem__):
        if batches and len(batches[-1]) < limit and widths[index] <= WIDER * max(WIDTH_STEP, widths[batches[-1][0]]):
            batches[-1].append(index)
        else:
            batches.append([index])
    return batches


def read(crops):
    """One call of the recogniser: (text, score) of each crop. Raises CallFailed."""
    width = -(-max(crop.shape[1] for crop in crops) // WIDTH_STEP) * WIDTH_STEP
    pixels = np.zeros((len(crops), 3, HEIGHT, width), np.float32)
    for row, crop in zip(pixels, crops, strict=True):
        row[:, :, : crop.shape[1]] = crop.transpose(2, 0, 1) / 127.5 - 1.0
    request = pb_utils.InferenceRequest(
        model_name="text_recognizer",
        inputs=[pb_utils.Tensor("x", pixels)],
        requested_output_names=["character", "probability"],
    )
    characters, probabilities = outputs(request.exec(), ["character", "probability"])
    return [decode(*line) for line in zip(characters, probabilities, strict=True)]


def outputs(response, names):
    """What a callee answered, as arrays. Raises CallFailed."""
    if response.has_error():
        raise CallFailed(response.error())
    return [pb_utils.get_output_tensor_by_name(response, name).as_numpy() for name in names]


def decode(characters, probabilities):
    """CTC: a character that repeats without a blank ("") between is one."""
    before = np.concatenate([[b""], characters[:-1]])
    kept = (characters != before) & (characters != b"")
    text = b"".join(characters[kept]).decode()
    return text, float(probabilities[kept].mean()) if text else 0.0
