"""kornia-rs, kornia's way of preparing images on the CPU: decode, resize, normalise; no antialiasing when linear."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bench.contestants.opencv import OpenCV
from bench.pipelines import Draw, Pipeline


class Kornia(OpenCV):
    key = "kornia"
    title = "kornia-rs"
    modules = ("kornia_rs",)
    pipelines = frozenset({"train", "eval", "decode"})
    settings = "io.read_image_jpegturbo, resize('bilinear'): no antialiasing; normalised by torch, DataLoader"

    def start_worker(self) -> None:
        """It starts no threads for images of this size."""

    def one(self, pipeline: Pipeline) -> Callable[[Any, Draw], Any]:
        import kornia_rs

        def one(file: Any, draw: Draw) -> Any:
            image = np.asarray(kornia_rs.io.read_image_jpegturbo(file))
            if draw.box is not None:
                top, left, height, width = draw.box
                image = np.ascontiguousarray(image[top : top + height, left : left + width])
            if draw.size is not None:
                image = np.asarray(kornia_rs.imgproc.resize(image, draw.size, "bilinear"))
            if draw.window is not None:
                top, left, height, width = draw.window
                image = image[top : top + height, left : left + width]
            return np.asarray(kornia_rs.imgproc.horizontal_flip(image)) if draw.flip else image

        return one
