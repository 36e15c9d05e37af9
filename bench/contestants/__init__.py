"""The registry: every contestant, in the order of tables. A new one is a file here and an entry below."""

from bench.contestants.accel_cpu import AccelCpu
from bench.contestants.albumentationsx import AlbumentationsX
from bench.contestants.contestant import Contestant
from bench.contestants.dali import Dali
from bench.contestants.dali_dynamic import DaliDynamic
from bench.contestants.ffcv import Ffcv
from bench.contestants.kornia import Kornia
from bench.contestants.nvimagecodec import NvImageCodec
from bench.contestants.opencv import OpenCV, OpenCVArea
from bench.contestants.spdl import Spdl
from bench.contestants.torchcodec import TorchCodec
from bench.contestants.torchvision_v1 import TorchvisionV1
from bench.contestants.torchvision_v2 import TorchvisionV2

_ROWS: tuple[Contestant, ...] = (
    TorchvisionV1(),
    TorchvisionV2(),
    AccelCpu(),
    OpenCV(),
    OpenCVArea(),
    NvImageCodec(),
    Dali(),
    DaliDynamic(),
    AlbumentationsX(),
    TorchCodec(),
    Spdl(),
    Ffcv(),
    Kornia(),
)

CONTESTANTS: dict[str, Contestant] = {row.key: row for row in _ROWS}
"""The contestants by key; the first is the reference, and "accel-cpu" is always there."""
