"""Imports and changes, and when they happen: nothing heavy before it is needed. Each in a process of its own."""

from tests.support import helpers

HEAVY = ("numba", "llvmlite", "nvidia.nvimgcodec", "nvidia.dali", "cupy", "cuda", "triton", "rich", "matplotlib")
LOADED = f"""
import sys
def loaded():
    return sorted({{name for name in sys.modules if name.startswith({HEAVY!r})}} - before)
import torch, torchvision, torchvision.transforms
before = set(sys.modules)
"""


def test_no_engine_is_imported_before_pixels_are_needed() -> None:
    """Not by importing accel, asking for names, switching, recording or stacking."""
    code = """
import accel, io
assert not loaded(), loaded()
assert "accel.backends.cpu" not in sys.modules
accel.image_backends()
accel.get_image_backend()
assert not loaded(), loaded()
from PIL import Image
from torchvision.transforms import functional as F
stream = io.BytesIO(); Image.new("RGB", (50, 40)).save(stream, "JPEG")
for name in ("auto", "cpu"):
    accel.set_image_backend(name)
    assert not loaded(), loaded()
    tensor = F.normalize(F.to_tensor(F.hflip(F.resize(Image.open(stream), [20, 20]))), [0.5], [0.5])
    assert not loaded(), loaded()
    torch.stack([tensor, tensor])
    assert not loaded(), loaded()
"""
    helpers.python(LOADED + code)


def test_importing_accel_changes_nothing() -> None:
    code = """
import torch, torchvision.datasets.folder as folder, torchvision.transforms.functional as F
from PIL import Image
from torch.utils.data import DataLoader
from torch.utils.data._utils import collate, fetch, worker
from torchvision.transforms import _functional_pil
Image.preinit()
def state():
    functions = [value for module in (F, folder, _functional_pil, fetch, worker, collate)
                 for value in vars(module).values() if callable(value)]
    return (
        dict(Image.OPEN), list(Image.ID),
        [(function, getattr(function, "__code__", None)) for function in functions],
        dict(vars(DataLoader)), dict(vars(fetch._MapDatasetFetcher)), dict(vars(fetch._IterableDatasetFetcher)),
        dict(collate.default_collate_fn_map), dict(vars(Image.Image)), dict(vars(torch.Tensor)),
    )
before = state()
import accel
assert state() == before
accel.set_image_backend("cpu")
assert state() != before
accel.set_image_backend("torchvision")
assert state() == before
"""
    helpers.python(code)


def test_accel_may_be_imported_before_torchvision_and_its_exit_is_clean() -> None:
    """With work done, and a backend in force: no warning, no text from threads or native code; the process ends."""
    code = """
import accel
accel.set_image_backend("cpu")
import io
from PIL import Image
from torchvision.transforms import ToTensor, functional as F
import torch
stream = io.BytesIO(); Image.new("RGB", (50, 40)).save(stream, "JPEG")
assert type(ToTensor()(Image.open(stream))) is accel.LazyTensor
batch = torch.stack([F.to_tensor(Image.open(stream)) for _ in range(8)])
print(float(batch.sum()))
kept = torch.stack([F.to_tensor(Image.open(stream)) for _ in range(8)])
"""
    assert helpers.python(code, environment={}) == "0.0\n"
