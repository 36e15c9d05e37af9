"""The kernels as NVRTC compiles them, run without a GPU (ptx/): what they make equals torchvision's."""

from __future__ import annotations

import pytest
from cuda_support import host_only
from helpers import assert_same
from kernel_plans import plans
from ptx.device import PtxDevice
from ptx.running import computed

import accel

pytestmark = host_only
pytest.importorskip("cuda.bindings", reason="NVRTC compiles the kernels")


@pytest.mark.parametrize("name", ["torch.float32 False 37", "shrunk bilinear"])
def test_small_images(name: str) -> None:
    device = PtxDevice()
    with accel.image_backend("torchvision"):
        expected = plans()[name]()
    assert_same(computed(device, plans()[name]), expected)
    assert device.ran["emit3"]
