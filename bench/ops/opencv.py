"""The same ops by OpenCV, as its documentation recommends: on uint8 [height, width, 3], in its own arithmetic.

Their pixels are not torchvision's; only their speed is measured.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torchvision.transforms.functional import _get_inverse_affine_matrix

from bench.ops.rows import CORNERS, DISPLACEMENT, SHEARED, SIZE, TURN

Pixels = npt.NDArray[np.uint8]
Op = Callable[[Pixels], Any]


def ops() -> dict[str, Op]:
    """The ops, by the names of ``rows.OPS``.

    Raises:
        ImportError: OpenCV is not installed.
    """
    import cv2

    cv2.setNumThreads(1)
    height, width = SIZE
    levels = np.arange(256)
    gamma = np.clip(255.999 * (levels / 255) ** 0.8, 0, 255).astype(np.uint8)
    folded = np.where(levels < 128, levels, 255 - levels).astype(np.uint8)
    smooth = np.array([[1, 1, 1], [1, 5, 1], [1, 1, 1]], np.float32) / 13
    turn = cv2.getRotationMatrix2D((width / 2, height / 2), TURN["angle"], 1.0)
    sheared = np.array(_get_inverse_affine_matrix([0.5 * width, 0.5 * height], *SHEARED)).reshape(2, 3)
    corners = cv2.getPerspectiveTransform(np.array(CORNERS[0], np.float32), np.array(CORNERS[1], np.float32))
    x, y = np.meshgrid(np.arange(width, dtype=np.float32), np.arange(height, dtype=np.float32))
    moved = DISPLACEMENT[0].numpy() * np.array([width / 2, height / 2], np.float32)
    places = np.float32(x + moved[..., 0]), np.float32(y + moved[..., 1])

    def grey(a: Pixels) -> Any:
        return cv2.cvtColor(a, cv2.COLOR_RGB2GRAY)

    def in_three(a: Any) -> Any:
        return cv2.cvtColor(a, cv2.COLOR_GRAY2RGB)

    def hue(a: Pixels) -> Any:
        hsv = cv2.cvtColor(a, cv2.COLOR_RGB2HSV_FULL)
        hsv[..., 0] += 25
        return cv2.cvtColor(hsv, cv2.COLOR_HSV2RGB_FULL)

    def contrast(a: Pixels) -> Any:
        return cv2.convertScaleAbs(a, alpha=0.7, beta=0.3 * round(cv2.mean(grey(a))[0]))

    def stretched(a: Pixels) -> Any:
        return cv2.merge([cv2.normalize(plane, None, 0, 255, cv2.NORM_MINMAX) for plane in cv2.split(a)])

    def expanded() -> Op:
        matrix = turn.copy()
        cosine, sine = abs(matrix[0, 0]), abs(matrix[0, 1])
        size = int(height * sine + width * cosine), int(height * cosine + width * sine)
        matrix[:, 2] += np.array(size) / 2 - np.array([width, height]) / 2
        return lambda a: cv2.warpAffine(a, matrix, size, flags=cv2.INTER_LINEAR, borderValue=TURN["fill"])

    def coded(a: Pixels) -> Any:
        _, file = cv2.imencode(".jpg", a, [cv2.IMWRITE_JPEG_QUALITY, 75])
        return cv2.imdecode(file, cv2.IMREAD_COLOR)  # in the order of channels in which it was given

    shift = np.array([[1.0, 0.0, 12.0], [0.0, 1.0, -8.0]])
    size, found = (width, height), dict[str, Op]()
    for mode, how in (("nearest", cv2.INTER_NEAREST), ("bilinear", cv2.INTER_LINEAR), ("bicubic", cv2.INTER_CUBIC)):
        found[f"resize, {mode}"] = partial(cv2.resize, dsize=(341, 256), interpolation=how)
        found[f"perspective, {mode}"] = partial(cv2.warpPerspective, M=corners, dsize=size, flags=how)
        found[f"rotate, {mode}"] = partial(cv2.warpAffine, M=turn, dsize=size, flags=how, borderValue=TURN["fill"])
        if mode != "bicubic":
            found[f"affine, {mode}"] = partial(cv2.warpAffine, M=sheared, dsize=size, flags=how | cv2.WARP_INVERSE_MAP)
    return found | {
        "crop": lambda a: a[20:244, 30:254],
        "hflip": lambda a: cv2.flip(a, 1),
        "vflip": lambda a: cv2.flip(a, 0),
        "pad, constant": lambda a: cv2.copyMakeBorder(a, 16, 16, 16, 16, cv2.BORDER_CONSTANT, value=(1, 2, 3)),
        "pad, reflect": lambda a: cv2.copyMakeBorder(a, 16, 16, 16, 16, cv2.BORDER_REFLECT_101),
        "rotate, bilinear": expanded(),
        "rotate by 90": lambda a: cv2.rotate(a, cv2.ROTATE_90_COUNTERCLOCKWISE),
        "translate, nearest": partial(cv2.warpAffine, M=shift, dsize=size, flags=cv2.INTER_NEAREST),
        "elastic": lambda a: cv2.remap(a, *places, cv2.INTER_LINEAR),
        "brightness": lambda a: cv2.convertScaleAbs(a, alpha=1.3),
        "contrast": contrast,
        "saturation": lambda a: cv2.addWeighted(a, 1.4, in_three(grey(a)), -0.4, 0),
        "hue": hue,
        "gamma": lambda a: cv2.LUT(a, gamma),
        "sharpness": lambda a: cv2.addWeighted(a, 1.8, cv2.filter2D(a, -1, smooth), -0.8, 0),
        "grayscale, 1 channel": grey,
        "grayscale, 3 channels": lambda a: in_three(grey(a)),
        "invert": cv2.bitwise_not,
        "posterize": lambda a: cv2.bitwise_and(a, (0xE0, 0xE0, 0xE0, 0)),
        "solarize": lambda a: cv2.LUT(a, folded),
        "autocontrast": stretched,
        "equalize": lambda a: cv2.merge([cv2.equalizeHist(plane) for plane in cv2.split(a)]),
        "permute channels": lambda a: cv2.merge([cv2.split(a)[channel] for channel in (2, 0, 1)]),
        "gaussian blur, 5 x 5": lambda a: cv2.GaussianBlur(a, (5, 5), 1.1),
        "gaussian blur, 23 x 23": lambda a: cv2.GaussianBlur(a, (23, 23), 3.8),
        "JPEG": coded,
    }


def floats(pixels: Any) -> torch.Tensor:
    """OpenCV's result as by ToTensor: [channels, height, width] float32 in 0..1."""
    tensor = torch.from_numpy(pixels[..., None] if pixels.ndim == 2 else pixels).permute(2, 0, 1)
    return torch.empty(tensor.shape).copy_(tensor).mul_(1 / 255)
