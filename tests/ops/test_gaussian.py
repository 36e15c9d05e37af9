"""Gaussian blur: torchvision's bits, whatever torch's settings; and what decides between the two sums."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision import transforms as T
from torchvision.transforms import functional as F
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional as F2

import accel
from accel.backends.shared import gaussian
from rig.batches import noise
from tests.support import helpers, inside
from tests.support.backends import Backend
from tests.support.cuda import needs_compiler
from tests.support.gaussian import assert_equal, fallbacks, stripes
from tests.support.processes import ROOT, in_child

KERNELS = ([1, 1], [3, 3], [1, 9], [7, 1], [5, 9], [23, 3], [9, 9], [23, 23], [31, 31])
SIGMAS = ([0.1, 0.1], [0.3, 2.0], [0.8, 0.8], [2.0, 1.1], [9.0, 30.0], [1e-30, 1e4])
SIZES = ((16, 16), (17, 40), (61, 33))


@contextmanager
def no_fallback() -> Iterator[None]:
    """Where torch adds up in an order that accel knows."""
    before = fallbacks()
    yield
    assert fallbacks() == before


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_every_bit(kernel: list[int], mode: str, backend: Backend) -> None:
    with no_fallback():
        for sigma in SIGMAS if backend.name == "cpu" else SIGMAS[1:3]:
            images = [noise(*size, mode, n) for n, size in enumerate(SIZES)]
            images += [stripes(mode), stripes(mode, (0, 255)), helpers.picture(60, 45, mode)]
            assert_equal(images, kernel, sigma, name=backend.name, **backend.options)


def test_large_images() -> None:
    """Grey ones: torch takes other convolutions then."""
    with no_fallback():
        for mode in ("RGB", "L"):
            for kernel in ([3, 3], [3, 9], [9, 9]):
                assert_equal([noise(150, 160, mode)], kernel, [1.5, 0.7])


def test_a_float_has_an_eager_kernel_still() -> None:
    expected = F.gaussian_blur(F.to_tensor(noise(20, 30)), [5, 3])
    with accel.image_backend("cpu"):
        assert torch.equal(torch.clone(F.gaussian_blur(F.to_tensor(noise(20, 30)), [5, 3])), expected)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("onednn", [True, False])
def test_torchs_settings(threads: int, onednn: bool) -> None:
    """Asked for when the values are computed, as torchvision's function asks when it runs."""
    before = torch.get_num_threads(), torch.backends.mkldnn.enabled
    torch.set_num_threads(threads)
    torch.backends.mkldnn.set_flags(onednn)
    try:
        for kernel in ([3, 3], [5, 7], [9, 9]):
            assert_equal([noise(40, 50), noise(30, 20, "L"), stripes()], kernel, [1.2, 0.9])
    finally:
        torch.set_num_threads(before[0])
        torch.backends.mkldnn.set_flags(before[1])


@pytest.mark.parametrize("precision", ["bf16", "tf32"])
def test_convolutions_of_lower_precision(precision: str) -> None:
    """Which torch takes where the processor has them."""
    conv = torch.backends.mkldnn.conv
    before = conv.fp32_precision
    conv.fp32_precision = precision
    try:
        assert_equal([noise(40, 50), noise(150, 160, "L"), stripes()], [5, 7], [1.2, 0.9])
    finally:
        conv.fp32_precision = before


SETTINGS = (
    "torch.backends.cuda.matmul.fp32_precision = 'tf32'",
    "torch.backends.fp32_precision = 'tf32'",
    "torch.backends.mkldnn.matmul.fp32_precision = 'bf16'",
    "torch.set_float32_matmul_precision('medium')",
)


@needs_compiler
@pytest.mark.parametrize("setting", SETTINGS)
def test_precisions_that_are_set(setting: str) -> None:
    """After some of which torch does not say any more what they are: so in a process of its own."""

    def blurred() -> bool:
        torch.set_num_threads(1)
        exec(setting)
        for options in ({"name": "cpu"}, {"name": "cuda", "device": "cpu"}):
            assert_equal([noise(40, 50), noise(30, 40, "L")], [5, 7], [1.2, 0.9], **options)
        return True

    assert in_child(blurred)()


def test_where_the_values_are_asked_for_makes_no_difference() -> None:
    blurred = T.Compose([T.GaussianBlur([5, 9], (1.1, 1.1)), T.PILToTensor()])
    expected = blurred(noise(40, 50))
    for kind in (torch.float64, torch.bfloat16):
        with accel.image_backend("cpu"):
            lazy = blurred(noise(40, 50))
            before = torch.get_default_dtype()
            torch.set_default_dtype(kind)
            try:
                with torch.autocast("cpu", torch.bfloat16):
                    assert torch.equal(torch.clone(lazy), expected)
            finally:
                torch.set_default_dtype(before)


@pytest.mark.sweep
def test_without_fused_instructions() -> None:
    """oneDNN's code for processors that have none rounds twice."""
    helpers.python(
        """
import torch
from rig.batches import noise
from tests.support.gaussian import assert_equal, fallbacks, stripes
for kernel in ([3, 3], [5, 9], [23, 23]):
    assert_equal([noise(40, 50), noise(30, 40, "L"), stripes()], kernel, [1.2, 0.9])
""",
        path=ROOT,
        environment={"ONEDNN_MAX_CPU_ISA": "SSE41"},
    )


def prepared(kernel: list[int], sigma: list[float]) -> gaussian.Blur:
    params = (*kernel, *sigma, 2)
    order = gaussian.order_of(params, (60, 60, 3))
    if order is None:
        pytest.skip("torch adds up otherwise here")
    return gaussian.prepared(params, order)


@pytest.mark.parametrize("kernel", [[5, 5], [9, 9], [23, 23]], ids=str)
def test_two_passes_alone_would_be_wrong(kernel: list[int]) -> None:
    """And it is the values near a half that are mended."""
    told = prepared(kernel, [1.5, 1.5])
    wrong = mended = 0
    for seed in range(100):
        pixels = np.asarray(noise(60, 60, seed=seed)).copy() if seed else np.asarray(stripes()).copy()
        expected = np.asarray(F2.gaussian_blur(Image.fromarray(pixels), kernel, [1.5, 1.5]))
        alone, both = np.empty_like(pixels), np.empty_like(pixels)
        assert gaussian.blur(pixels, *told[:3], -1.0, -1.0, told.fused, alone) == 0
        summed = gaussian.blur(pixels, *told, both)
        assert np.array_equal(both, expected)
        wrong += int((alone != expected).sum())
        mended += summed
    assert 0 < wrong < mended


def test_every_sum_may_be_torchs() -> None:
    told = prepared([9, 5], [1.5, 0.9])
    pixels = np.asarray(noise(33, 41)).copy()
    out = np.empty_like(pixels)
    assert gaussian.blur(pixels, *told[:3], 1.0, 1.0, told.fused, out) == pixels.size
    assert np.array_equal(out, np.asarray(F2.gaussian_blur(Image.fromarray(pixels), [9, 5], [1.5, 0.9])))


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_the_bound_holds(kernel: list[int]) -> None:
    """The errors of torch's sums, and of passes in float32, against sums in float64."""
    for sigma in SIGMAS[:5]:
        told = prepared(kernel, sigma)
        images = [np.full((32, 32), 255, np.uint8), np.full((32, 32), 126, np.uint8), np.asarray(noise(32, 32, "L"))]
        for pixels in images:
            padded = np.pad(pixels, [(size // 2, size // 2) for size in kernel[::-1]], mode="reflect")
            windows = np.lib.stride_tricks.sliding_window_view(padded, kernel[::-1]).astype(np.float64)
            true = (windows * told.window).sum((2, 3))
            single = (windows.astype(np.float32) * told.down[:, None]).cumsum(2, np.float32)[:, :, -1]
            passes = (single * told.across).cumsum(2, np.float32)[:, :, -1]
            floats = torch.from_numpy(pixels.copy())[None].float()
            torchs = F2.gaussian_blur(floats, kernel, sigma)[0].double().numpy()
            bound = np.where(true < 127, told.dark, told.bright)
            assert (np.abs(torchs - true) <= bound).all()
            assert (np.abs(torchs - passes) <= bound).all()


def test_orders_are_told_apart() -> None:
    found = [gaussian._is(order, 2, (5, 5), (40, 50, 3)) for order in ("fused", "separate")]
    assert found.count(True) <= 1


@pytest.fixture
def unknown(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(gaussian, "_is", lambda *args: False)
    with inside.anew(gaussian._found):
        yield


@needs_compiler
@pytest.mark.parametrize("options", [{"name": "cpu"}, {"name": "cuda", "device": "cpu"}], ids=str)
@pytest.mark.usefixtures("unknown")
def test_torchvision_runs_it_then(options: dict[str, Any]) -> None:
    before = accel.stats()["fallbacks"].get(gaussian.UNKNOWN, 0)
    images = [noise(30, 40), stripes("L")]
    assert_equal(images, [5, 7], [1.2, 0.8], **options)
    assert accel.stats()["fallbacks"][gaussian.UNKNOWN] == before + 4 * len(images)
    with accel.image_backend(**options):
        text = accel.explain(v2.functional.gaussian_blur(noise(30, 40), [3, 3]))
    assert "not by accel: gaussian_blur" in text


def test_explain_says_nothing_where_accel_runs_it() -> None:
    with accel.image_backend("cpu"):
        assert "not by accel" not in accel.explain(F.gaussian_blur(noise(30, 40), [3, 3]))
