"""accel: an unchanged torchvision script decodes and augments its images on the accelerator.

import accel
accel.set_image_backend("cpu")
"""

import sys

if sys.argv[:1] == ["-m"]:  # perhaps `python -m accel`: arguments are checked before torch is imported
    from accel.cli.command_line import begin

    begin()

import accel.hooks  # noqa: F401  registers how accel enters Pillow, torchvision and DataLoader
from accel import functional, packs, ray, wire
from accel.errors import AccelError, BackendUnavailable, DecodeError, ResumeError
from accel.lazy.explanation import explain, summary
from accel.lazy.image import LazyImage
from accel.lazy.per_image import per_image
from accel.lazy.submit import Future, submit
from accel.lazy.tensor import LazyTensor
from accel.lazy.warming import warm
from accel.packs.dataset import PackDataset
from accel.packs.shuffle import BlockShuffle
from accel.processes.switch import get_image_backend, image_backend, image_backends, set_image_backend
from accel.profiling.profile import profile
from accel.resuming.recording_only import digest, skip
from accel.sinking.device_queue import device_queue
from accel.sinking.sink import sink
from accel.system.counters import stats
from accel.system.version import __version__

__all__ = [
    "AccelError",
    "BackendUnavailable",
    "BlockShuffle",
    "DecodeError",
    "Future",
    "LazyImage",
    "LazyTensor",
    "PackDataset",
    "ResumeError",
    "__version__",
    "device_queue",
    "digest",
    "explain",
    "functional",
    "get_image_backend",
    "image_backend",
    "image_backends",
    "packs",
    "per_image",
    "profile",
    "ray",
    "set_image_backend",
    "sink",
    "skip",
    "stats",
    "submit",
    "summary",
    "warm",
    "wire",
]
