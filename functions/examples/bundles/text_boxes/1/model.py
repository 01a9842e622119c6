"""Turns the detector's probabilities into boxes: the post-processing of differentiable binarization (DB)."""

import json

import cv2
import numpy as np
import triton_python_backend_utils as pb_utils

MIN_SIDE = 3.0  # thinner spots are noise
SAME_LINE = 0.5  # boxes whose tops differ by less than this share of their height stand in one line


class TritonPythonModel:
    def initialize(self, args):
        parameters = json.loads(args["model_config"])["parameters"]
        self.pixel_threshold = float(parameters["pixel_threshold"]["string_value"])
        self.box_threshold = float(parameters["box_threshold"]["string_value"])
        self.unclip_ratio = float(parameters["unclip_ratio"]["string_value"])

    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        probability = pb_utils.get_input_tensor_by_name(request, "PROBABILITY").as_numpy()[0, 0]
        height, width = pb_utils.get_input_tensor_by_name(request, "PICTURE").as_numpy().shape[:2]
        boxes, scores = self.find(probability)
        boxes *= np.float32([width / probability.shape[1], height / probability.shape[0]])
        boxes = boxes.clip(0, [width - 1, height - 1]).astype(np.float32)
        order = reading_order(boxes)
        return pb_utils.InferenceResponse([pb_utils.Tensor("BOXES", boxes[order]), pb_utils.Tensor("SCORES", scores[order])])

    def find(self, probability):
        """Boxes [n, 4, 2] in the pixels of ``probability``, and their scores [n]."""
        mask = (probability > self.pixel_threshold).astype(np.uint8)
        mask = cv2.dilate(mask, np.ones((2, 2), np.uint8))
        contours, _ = cv2.findContours(mask, cv2.RETR_LIST, cv2.CHAIN_APPROX_SIMPLE)
        boxes, scores = [], []
        for contour in contours:
            spot = cv2.minAreaRect(contour)
            if min(spot[1]) < MIN_SIDE:
                continue
            score = mean_inside(probability, cv2.boxPoints(spot))
            if score >= self.box_threshold:
                boxes.append(clockwise(cv2.boxPoints(grown(spot, self.unclip_ratio))))
                scores.append(score)
        return np.float32(boxes).reshape(-1, 4, 2), np.float32(scores)


def mean_inside(probability, box):
    """The mean probability inside a box."""
    left, top = np.floor(box.min(axis=0)).astype(int).clip(0)
    right, bottom = np.ceil(box.max(axis=0)).astype(int) + 1
    window = probability[top:bottom, left:right]
    inside = np.zeros(window.shape, np.uint8)
    cv2.fillPoly(inside, [(box - [left, top]).astype(np.int32)], 1)
    return cv2.mean(window, inside)[0]


def grown(rectangle, ratio):
    """The rectangle moved outwards on all sides by area × ratio ÷ perimeter."""
    centre, (width, height), angle = rectangle
    distance = width * height * ratio / (2 * (width + height))
    return centre, (width + 2 * distance, height + 2 * distance), angle


def clockwise(box):
    """The corners from the top left on: the left pair is the one with the smaller x."""
    left, right = np.split(box[np.argsort(box[:, 0])], 2)
    top_left, bottom_left = left[np.argsort(left[:, 1])]
    top_right, bottom_right = right[np.argsort(right[:, 1])]
    return np.stack([top_left, top_right, bottom_right, bottom_left])


def reading_order(boxes):
    """Indices of the boxes, from top to bottom and, in one line, from left to right."""
    tops, heights = boxes[:, 0, 1], boxes[:, 3, 1] - boxes[:, 0, 1]
    lines = []
    for index in np.argsort(tops, kind="stable"):
        if lines and tops[index] - tops[lines[-1][0]] < SAME_LINE * heights[index]:
            lines[-1].append(index)
        else:
            lines.append([index])
    return [index for line in lines for index in sorted(line, key=lambda index: boxes[index, 0, 0])]
