"""``python -m tests.rig.memory_checked decoder | kernels | loader``: the compiled code where memory errors show.

Everything is compared with Pillow or torchvision; exit status 1: it differs. With --walls it is done once more with
every block of memory between pages that may not be touched. Other allocators are chosen by the environment
(test_memory_checked.py).
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import torch
from numba import njit
from PIL import Image
from torch.utils.data import DataLoader
from torchvision import transforms as T
from torchvision.datasets import ImageFolder

import accel
from accel import testing
from accel.codec import arrow, jpeg
from accel.codec import decode as codec
from accel.codec.header import claim
from accel.system import memory
from accel.system.native.memory import pointer_to
from bench import guard
from bench.fuzz.coder import SAMPLINGS, Coder, random_blocks
from bench.fuzz.files import encode, picture, pillow
from tests.support.helpers import write_image_folder

CASES = testing.SIZES
SIZES = ((1, 1), (3, 2), (8, 8), (17, 33), (40, 61), (130, 97))
TRANSFORMS = (
    T.Compose([T.RandomResizedCrop(64), T.RandomHorizontalFlip(), T.ToTensor(), T.Normalize((0.5,) * 3, (0.2,) * 3)]),
    T.Compose([T.RandAugment(), T.Resize(72), T.CenterCrop(64), T.ToTensor()]),
)


class NewEachTime(jpeg._Scratch):
    """Working memory that ends where what is asked for ends, and is new for every picture."""

    def room(self, name: str, size: int) -> np.ndarray:
        return np.empty(size, getattr(self, name).dtype)


def begin_anew() -> None:
    jpeg._scratch = NewEachTime()


def files() -> Iterator[bytes]:
    for n, size in enumerate(SIZES):
        for subsampling in range(3):
            yield encode(picture("smooth", *size, seed=n), subsampling=subsampling, quality=50 + 8 * n)
        yield encode(picture("stripes", *size, 1))
    yield encode(picture("smooth", 40, 61), restart_marker_blocks=2, quality=60)
    yield encode(picture("noise", 24, 70), restart_marker_blocks=1, subsampling=0, optimize=True)
    for components in SAMPLINGS:
        yield Coder().file((29, 37), [(i, *factors) for i, factors in enumerate(components, 1)], random_blocks(60))
    yield encode(picture("smooth", 33, 50), progressive=True)


def boxes(height: int, width: int) -> Iterator[tuple[int, int, int, int]]:
    yield 0, 0, height, width
    rng = np.random.default_rng(height * width)
    for _ in range(6):
        top, left = int(rng.integers(height)), int(rng.integers(width))
        yield top, left, int(rng.integers(1, height - top + 1)), int(rng.integers(1, width - left + 1))
    yield height - 1, 0, 1, width
    yield 0, width - 1, height, 1


def decoder() -> None:
    """accel's decoder, the engine for progressive files, and the packing of Pillow's pixels."""
    for data in files():
        header, expected = claim(data), pillow(data)
        assert header is not None
        channels = expected.shape[2]
        for box in boxes(header.height, header.width):
            top, left, height, width = box
            wanted = expected[top : top + height, left : left + width]
            found: np.ndarray | None
            if header.progressive:
                found = codec.decode(guard.copy(data), header, box, channels)
            else:
                begin_anew()
                found = jpeg.decode(guard.copy(data), box)
            assert found is not None, f"declined: {header}, {box}"
            assert np.array_equal(found, wanted), f"not Pillow's: {header}, {box}"
    for size in SIZES:
        image = Image.fromarray(picture("noise", *size))
        for top, left, height, width in boxes(*size):
            part = image.crop((left, top, left + width, top + height))
            assert bytes(arrow.region(image, (top, left, height, width)) or part.tobytes()) == part.tobytes()
        assert bytes(arrow.luma(image) or b"") in (b"", image.convert("L").tobytes())


def kernels() -> None:
    """Every op of the table on the cpu backend."""
    from accel.backends.cpu import passes

    passes.MOST_RETAINED = -1  # a workspace of the size that is needed, for every call
    for case in testing.cases():
        if case.size in CASES:
            testing.check(case, "cpu")


def loader() -> None:
    """A plain script: threads without workers, and workers."""
    memory.Results._SMALLEST = 1 << 62  # batches from the allocator
    with tempfile.TemporaryDirectory() as folder:
        write_image_folder(Path(folder))
        for transform in TRANSFORMS:
            found = {}
            for backend in ("torchvision", "cpu"):
                accel.set_image_backend(backend)
                for workers in (0, 2):
                    torch.manual_seed(0)
                    batches = DataLoader(ImageFolder(folder, transform), 4, num_workers=workers, timeout=120 * workers)
                    found[backend, workers] = torch.cat([images.clone() for images, _ in batches])
            for workers in (0, 2):
                assert torch.equal(found["cpu", workers], found["torchvision", workers]), f"{workers} workers"


@njit  # type: ignore[untyped-decorator]
def let_go(size: int) -> int:
    values = np.empty(size, np.uint8)
    at, total = pointer_to(values), 0  # and here numba frees them
    for i in range(size):
        at[i] = i
        total += at[i]
    return total


def short(size: int) -> None:
    data = encode(picture("smooth", size, size))
    begin_anew()
    room = NewEachTime.room
    NewEachTime.room = lambda self, name, size: room(self, name, size // 2)  # type: ignore[method-assign]
    jpeg.decode(data)


MISTAKES: dict[str, Callable[[int], object]] = {"let go": let_go, "too small": short}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.rig.memory_checked", description=__doc__)
    parser.add_argument("what", choices=("decoder", "kernels", "loader"))
    parser.add_argument("--walls", choices=("behind", "before"))
    parser.add_argument("--mistake", choices=MISTAKES)
    arguments = parser.parse_args()
    if arguments.walls and not guard.present():
        os.execve(sys.executable, [sys.executable, "-X", "faulthandler", *sys.orig_argv[1:]], guard.environment())
    if arguments.mistake:
        decoder()
        with guard.armed(arguments.walls) if arguments.walls else nullcontext():
            MISTAKES[arguments.mistake](100)
        return 0
    globals()[arguments.what]()  # and compile, where that is still to be done
    if arguments.walls:
        with guard.armed(arguments.walls):
            globals()[arguments.what]()
        print(guard.counts())
    if unused := [reason for reason in accel.stats()["fallbacks"] if "declined" in reason or "disagrees" in reason]:
        print(unused)
        return 1
    print("nothing found")
    return 0


if __name__ == "__main__":
    sys.exit(main())
