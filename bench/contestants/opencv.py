"""OpenCV, bilinear: what most hand-written fast loaders are. INTER_LINEAR does not antialias; see ``OpenCVArea``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import torch

from bench.contestants.contestant import InLoader, normalised
from bench.job import Batch
from bench.pipelines import Draw, Pipeline, boxes_after


class OpenCV(InLoader):
    key = "opencv"
    title = "OpenCV, linear"
    modules: ClassVar[tuple[str, ...]] = ("cv2",)
    pipelines = frozenset({"train", "eval", "decode", "cifar", "detection"})
    settings = "imread(IMREAD_COLOR_RGB), resize(INTER_LINEAR): no antialiasing; setNumThreads(1), DataLoader"
    filter: ClassVar[str] = "INTER_LINEAR"

    def start_worker(self) -> None:
        import cv2

        cv2.setNumThreads(1)

    def one(self, pipeline: Pipeline) -> Callable[[Any, Draw], Any]:
        import cv2

        interpolation, pad = getattr(cv2, self.filter), pipeline.pad

        def one(image: Any, draw: Draw) -> Any:
            if pipeline.source == "files":
                image = cv2.imread(image, cv2.IMREAD_COLOR_RGB | cv2.IMREAD_IGNORE_ORIENTATION)
            size = image.shape[:2]
            if pad:
                image = cv2.copyMakeBorder(image, pad, pad, pad, pad, cv2.BORDER_CONSTANT)
            if draw.box is not None:
                top, left, height, width = draw.box
                image = image[top : top + height, left : left + width]
            if draw.size is not None:
                image = cv2.resize(image, draw.size[::-1], interpolation=interpolation)
            if draw.window is not None:
                top, left, height, width = draw.window
                image = image[top : top + height, left : left + width]
            image = cv2.flip(image, 1) if draw.flip else image
            return (image, boxes_after(size, draw)) if pipeline.boxes else image

        return one

    def collate(self, pipeline: Pipeline) -> Callable[[list[Any]], Batch]:
        if pipeline.mean is None:
            return lambda images: [torch.from_numpy(image).permute(2, 0, 1) for image in images]
        if pipeline.boxes:
            return lambda pairs: [
                tensor for image, boxes in pairs for tensor in (normalised([image], pipeline)[0], boxes)
            ]
        return lambda images: normalised(images, pipeline)


class OpenCVArea(OpenCV):
    key = "opencv-area"
    title = "OpenCV, area"
    pipelines = frozenset({"train", "eval"})
    settings = "as OpenCV, linear, with INTER_AREA, which averages where it makes smaller"
    filter = "INTER_AREA"
