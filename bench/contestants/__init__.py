"""The registry: every contestant, in the order of tables. A new one is a class here and an entry below."""

from bench.contestants.arrays import AlbumentationsX, Kornia, NvImageCodec, OpenCV, OpenCVArea
from bench.contestants.contestant import Contestant
from bench.contestants.dali import Dali, DaliDynamic
from bench.contestants.decoders import DECODERS
from bench.contestants.loaders import DataloaderRs, Ffcv, Spdl
from bench.contestants.scripts import AccelCpu, TorchCodec, TorchvisionV1, TorchvisionV2

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
    DataloaderRs(),
    Ffcv(),
    Kornia(),
    *DECODERS,
)

CONTESTANTS: dict[str, Contestant] = {row.key: row for row in _ROWS}
"""The contestants by key; the first is the reference, and "accel-cpu" is always there."""
