"""Gaussian blur as torch computes it for torchvision: its weights, and the order in which torch adds up, if known."""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from accel.ops import OPS
from accel.ops.row import Params
from accel.processes.switch import image_backend
from accel.system import arithmetic
from accel.system.imports import LazyModule
from accel.system.native import units
from accel.system.private_names import private

_v1 = private("torchvision.transforms._functional_tensor", "_get_gaussian_kernel1d")
_v2 = private("torchvision.transforms.v2.functional._misc", "_get_gaussian_kernel1d")
_torch = private("torch._C", "_select_conv_backend")

_llvm = LazyModule("llvmlite.binding")

_CPU = torch.device("cpu")

_SOURCES = (f"backends/shared/{name}.py" for name in ("gaussian_kernels", "numba_memory", "simd_floats"))
_UNIT = units.Unit("gaussian", *_SOURCES, seconds=4, makes_arrays=True)
_KERNELS = "backends.shared.gaussian_kernels"
_find_bounds = _UNIT.function(_KERNELS, "find_bounds", "f4[2] f4[1]w f4[1]w f8[1]w")
_sum_windows = _UNIT.function(_KERNELS, "sum_windows", "u1[3] f4[2] bool int f4[1]w")
blur = _UNIT.function(_KERNELS, "blur", "u1[3] f4[2] f4[1] f4[1] f4 f4 bool u1[3]w")
"""The convolution: pixels, the fields of ``Blur``, and the result, all arrays C-contiguous."""

Shape = tuple[int, int, int]
Weights = npt.NDArray[np.float32]
Order = Literal["fused", "separate"]
"""Row by row through the window: a product is added to the sum with one rounding ("fused"), or rounded before."""

UNKNOWN = "torch adds up Gaussian blurs here in an order that accel does not know; torchvision ran them"


class Blur(NamedTuple):
    """Arguments of ``blur``: the window, the weights of its two passes, and the bounds of their error."""

    window: Weights
    across: Weights
    down: Weights
    dark: float
    bright: float
    fused: bool


def prepared(params: Params, order: Order) -> Blur:
    """The kernel's arguments for a step's parameters, if torch adds up in this order."""
    window = window_of(params)
    across, down = np.empty(window.shape[1], np.float32), np.empty(window.shape[0], np.float32)
    bounds = np.empty(2)
    _find_bounds(window, across, down, bounds)
    dark, bright = bounds.tolist()
    return Blur(window, across, down, dark, bright, order == "fused")


def window_of(params: Params) -> Weights:
    """torchvision's weights, float32 [rows, columns], from its own functions."""
    kernel_x, kernel_y, sigma_x, sigma_y, version = params
    make = (_v1 if version == 1 else _v2)._get_gaussian_kernel1d
    across: Weights = make(kernel_x, sigma_x, torch.float32, _CPU).numpy()
    same = (kernel_x, sigma_x) == (kernel_y, sigma_y)
    down: Weights = across if same else make(kernel_y, sigma_y, torch.float32, _CPU).numpy()
    return np.multiply.outer(down, across)


# -- the order ------------------------------------------------------------------------------------------------


def order_of(params: Params, shape: Shape) -> Order | None:
    """The order in which torch adds up a window, for pixels [height, width, channels]; None if it is not known.

    The convolution that torch chooses depends on the shape and on its settings. The choice is queried, and the order is
    found by trial, once for each choice, window size and number of channels.
    """
    kernel_x, kernel_y, _, _, version = params
    window, settings = (kernel_x, kernel_y), _settings()
    chosen = _convolution(window, shape, settings)
    return _found(version, window, shape[2], chosen, settings)


def _settings() -> tuple[Any, ...]:
    """The settings of torch on which its choice and its arithmetic may depend."""
    mkldnn: Any = torch.backends.mkldnn
    return (  # not get_float32_matmul_precision, which raises if a backend's own precision was set
        torch._C._get_mkldnn_enabled(),  # as torch.backends.mkldnn.enabled, but cheap
        mkldnn.conv.fp32_precision,
        mkldnn.matmul.fp32_precision,
        torch.are_deterministic_algorithms_enabled(),
        torch.get_num_threads(),
    )


@lru_cache(maxsize=4096)
def _convolution(window: tuple[int, int], shape: Shape, settings: tuple[Any, ...]) -> str:
    """The name of the convolution that torch chooses for an image of this shape."""
    (kernel_x, kernel_y), (height, width, channels) = window, shape
    with torch.no_grad():
        value = torch.zeros((), dtype=torch.float32, device=_CPU)  # only the shapes matter
        image = value.expand(1, channels, height + kernel_y - 1, width + kernel_x - 1)
        weights = value.expand(channels, 1, kernel_y, kernel_x)
        chosen = _torch._select_conv_backend(image, weights, None, (1, 1), (0, 0), (1, 1), False, (0, 0), channels)
    return str(chosen)


_TRIED = 4001


@cache
def _found(
    version: int, window: tuple[int, int], channels: int, chosen: str, settings: tuple[Any, ...]
) -> Order | None:
    if not _fuses():
        return None
    sizes = [(window[1] // 2 + rows, window[0] // 2 + columns, channels) for rows, columns in ((9, 22), (131, 163))]
    sizes = [size for size in sizes if _convolution(window, size, settings) == chosen]
    orders: tuple[Order, ...] = ("fused", "separate")
    return next((order for order in orders if sizes and all(_is(order, version, window, size) for size in sizes)), None)


def _is(order: Order, version: int, window: tuple[int, int], shape: Shape) -> bool:
    """Whether torch's sums on an image of noise equal those of an order, at several thousand places."""
    pixels = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    params = (*window, *(0.15 * size + 0.35 for size in window), version)
    step = max(pixels.size // _TRIED, 1) | 1
    sums = np.empty(len(range(0, pixels.size, step)), np.float32)
    _sum_windows(pixels, window_of(params), order == "fused", step, sums)
    floats = torch.from_numpy(pixels).permute(2, 0, 1).to(torch.float32)
    with image_backend("torchvision"), arithmetic.as_recorded():
        wanted: torch.Tensor = OPS["gaussian_blur"].reference(floats, params)  # of floats, which it does not round
    return np.array_equal(sums, wanted.permute(1, 2, 0).reshape(-1)[::step].numpy())


@cache
def _fuses() -> bool:
    """Whether this machine has an instruction that multiplies and adds with one rounding."""
    try:
        found = _llvm.get_host_cpu_features()
    except RuntimeError:  # LLVM does not know the features of this machine
        return False
    return bool(found.get("fma") or found.get("neon"))
