"""The kernels on the host with their threads in other orders, and searched for races."""

import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import accel
from accel.backends.cuda import compile, host
from accel.backends.cuda.declarations import SOURCES
from accel.backends.cuda.jpeg import Request
from accel.backends.cuda.jpeg.layout import PICTURE, STATE
from rig.batches import batches
from rig.races import ORDERS, Races, built_with, finding_races
from tests.support import inside
from tests.support.cuda import assert_equals_torchvision, host_only, needs_compiler, on_device
from tests.support.jpeg import lies, shape

pytestmark = [needs_compiler, host_only, pytest.mark.usefixtures("small_batches_indexed")]

BATCHES = batches()


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernels run everything."""
    inside.no_host(monkeypatch)


@pytest.fixture
def races() -> Iterator[Races]:
    with finding_races() as found:
        yield found


@pytest.mark.sweep
@pytest.mark.parametrize("order", ORDERS)
def test_the_order_of_threads_makes_no_difference(order: str) -> None:
    with built_with(*ORDERS[order]):
        for batch in BATCHES.values():
            assert_equals_torchvision(batch)
        damaged_files()


def damaged_files() -> None:
    """Through every guard of the decoder."""
    files = [data for data, _ in lies().values()]
    wanted = [Request(data, (0, 0, *shape(data)[:2]), shape(data)[2]) for data in files]
    decoding = inside.engine().jpeg.decode(wanted)
    assert decoding.flagged() == list(range(len(files)))


def many_tiles() -> None:
    """``jpeg_offsets`` alone, of a file of more than a megabyte."""
    tiles = np.zeros((700, 4), np.int32)
    tiles[:, :2] = np.random.default_rng(0).integers(0, 4000, (700, 2))
    tiles[:, 2] = 0x7FFFFFFF
    tiles[650, 2] = 12345
    before, state = tiles[:, :2].cumsum(0) - tiles[:, :2], np.zeros(1, STATE)
    picture, owner = np.zeros(1, PICTURE), np.zeros(1, np.int32)
    picture["tiles"], picture["state"], picture["tile_count"] = tiles.ctypes.data, state.ctypes.data, len(tiles)
    host.function("jpeg_offsets")(1, picture.ctypes.data, owner.ctypes.data)
    assert np.array_equal(tiles[:, :2], before)
    assert state["stop"] == 12345


@pytest.mark.sweep
def test_no_kernel_has_a_race(races: Races) -> None:
    for name, batch in BATCHES.items():
        assert_equals_torchvision(batch)
        assert not races.found(), name
    damaged_files()
    many_tiles()
    out_of_step()
    assert not races.found()


def out_of_step(qualities: tuple[int, ...] = (20, 75, 95)) -> None:
    """Blocks of threads are joined in several rounds, for what is guessed never comes right by itself."""
    square = np.random.default_rng(0).integers(0, 256, (8, 8), np.uint8)
    pictures = {
        95: np.tile(square, (60, 60)),
        20: np.tile(square, (120, 120)),
        75: np.full((2100, 2100, 3), 100, np.uint8),
    }
    files = []
    for quality in qualities:
        file = BytesIO()
        Image.fromarray(pictures[quality]).save(file, "JPEG", quality=quality)
        files.append(file.getvalue())
    wanted = [Request(data, (9, 8, 10, 12), shape(data)[2]) for data in files]
    decoder = inside.engine().jpeg
    decoding = decoder.decode(wanted)
    assert decoding.flagged() == []
    for number, each in enumerate(wanted):
        pixels = decoding.read(number, 120 * each.channels).reshape(10, 12, -1)
        with Image.open(BytesIO(each.data)) as image:
            assert np.array_equal(pixels, np.asarray(image).reshape(*image.size[::-1], -1)[9:19, 8:20])


NOT_NEEDED = {
    # behind the last phase of a kernel, or between phases of which each thread looks at its own alone
    "effects.cu": 1,
    "filter.h": 1,
    "statistic.h": 2,  # one of them orders what is changed atomically, before another block looks
    "passes.cu": 1,
    "resample.h": 1,
    "entropy.cu": 6,
    "pixels.cu": 2,
    "stream.cu": 3,
    "tables.cu": 1,
    "points.cu": 1,
    "segments.cu": 1,
    "patch.cu": 1,
    "coefficients.cu": 1,
}
REACHED_BY: dict[str, tuple[str, ...]] = {
    "effects.cu": ("mixed",),
    "filter.h": ("blurred (23, 5) RGB", "blurred (79, 5) RGB"),
    "statistic.h": ("contrast RGB", "equalize RGB"),
    "passes.cu": ("ragged (40, 9) lanczos", "torch.uint8 True 37"),
    "resample.h": ("ragged (40, 9) lanczos", "ragged (40, 9) bilinear", "shrunk bicubic"),
    "patch.cu": ("patches 3 False",),
    "points.cu": ("decoded, indexes made",),
    "segments.cu": ("decoded, indexes known",),
    "coefficients.cu": ("ragged (3, 50) bicubic",),
}


@pytest.mark.sweep
def test_every_missing_barrier_would_be_found(races: Races) -> None:
    """And of some it is known why they are not needed."""

    def ways(file: str) -> Iterator[Callable[[], object]]:
        yield from (partial(on_device, BATCHES[name]) for name in REACHED_BY.get(file, ("decoded",)))
        if file == "stream.cu":
            yield many_tiles
        if file == "entropy.cu":
            yield partial(out_of_step, (20, 75))

    def found(file: str) -> bool:
        for run in ways(file):
            with suppress(AssertionError, accel.AccelError):  # the result is wrong as well
                run()
            if races.found():
                return True
        return False

    for file in (*REACHED_BY, "entropy.cu", "stream.cu"):
        assert not found(file)
    missed: Counter[str] = Counter()
    for file, line in races.barriers():
        races.without(file, line)
        missed[Path(file).name] += not found(Path(file).name)
    races.without()
    assert +missed == NOT_NEEDED


@pytest.mark.sweep
def test_other_mistakes_would_be_found(races: Races, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sources = tmp_path / "cuda"
    inside.load_libraries_again(monkeypatch)
    for file, (right, wrong, plan, expected) in MISTAKES.items():
        shutil.copytree(SOURCES, sources, dirs_exist_ok=True)
        text = (sources / file).read_text()
        assert right in text
        (sources / file).write_text(text.replace(right, wrong))
        with monkeypatch.context() as patch:
            for module in (compile, host):
                patch.setattr(module, "SOURCES", sources)
            on_device(BATCHES[plan])
        assert any(found.startswith(expected) for found in races.found()), file


MISTAKES = {
    # what all threads of a block write; what nobody writes; what blocks write without knowing of each other
    "jpeg/stream.cu": (
        "PHASE(t) {\n        if (t == 0) lost = 0, stop = NONE;\n    }\n",
        "lost = 0, stop = NONE;\n",
        "decoded",
        "threads: atomic and write",
    ),
    # what is written in the same launch, or is no global memory, read through the caches for what nobody writes
    "jpeg/tables.cu": ("codes.symbol[place & 255] +", "read(&codes.symbol[place & 255]) +", "decoded", "launch: "),
    "coefficients.cu": ("largest[t] = 0.0;", "", "ragged (1, 1) bilinear", "shared, not written"),
    "effects/statistic.h": (
        "atomicAdd(&counters->pixels[c][t], pixels[c][t])",
        "counters->pixels[c][t] += pixels[c][t]",
        "counted by many blocks",
        "blocks: read and write",
    ),
}
