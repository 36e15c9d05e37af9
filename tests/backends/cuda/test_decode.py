"""accel's decoder on the device as a part of the cuda backend: which files it gets, and what becomes of the others."""

from collections.abc import Callable
from io import BytesIO
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.transforms import functional as F

import accel
from accel import testing
from accel.backends.cuda import finished, host
from accel.backends.cuda import jpeg as cuda_jpeg
from accel.backends.cuda.execution import Execution
from accel.backends.cuda.jpeg import requests
from accel.codec import agreement
from accel.planning.plan import plan
from accel.recipes.sources import table_of
from accel.runtime import read as runtime_read
from bench.fuzz.files import encode, picture
from bench.fuzz.recipes import Corpus, make, recipe
from tests.support import inside
from tests.support.cuda import DEVICE, assert_equals_torchvision, host_only, needs_compiler, on_device, stacked
from tests.support.helpers import assert_same, jpeg, pictures, undecodable
from tests.support.jpeg import check_on_device

pytestmark = needs_compiler

DECLINED = "accel declined a JPEG on the device; the host decoded it"


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[int]]:
    """How many files each batch's decoder took, and how many the host read."""
    counts: dict[str, list[int]] = {"device": [], "host": []}
    launch, on_the_host = Execution.launch, runtime_read.pixels

    def counted(self: Execution) -> None:
        if self.finished.files.size:
            counts["device"].append(self.finished.summary.decoded)
        launch(self)

    def read(*arguments: Any) -> Any:
        counts["host"].append(1)
        return on_the_host(*arguments)

    monkeypatch.setattr(agreement, "agrees", lambda *_: True)  # which decodes as well
    monkeypatch.setattr(Execution, "launch", counted)
    monkeypatch.setattr(runtime_read, "pixels", read)
    return counts


def batch_of(streams: list[bytes]) -> Callable[[], torch.Tensor]:
    def transform(image: Image.Image) -> torch.Tensor:
        return F.to_tensor(F.hflip(F.resized_crop(image.convert("RGB"), 3, 5, 25, 33, [20, 30])))

    return lambda: stacked([Image.open(BytesIO(each)) for each in streams], transform)


def damaged_in_the_scan(data: bytes) -> bytes:
    """A restart marker where none should be; Pillow decodes it none the less, to something else."""
    scan = data.rindex(b"\xff\xda") + 14
    place = scan + (len(data) - scan) // 6
    return data[:place] + b"\xff\xd3" + data[place + 2 :]


def without_a_good_table(data: bytes) -> bytes:
    """The first Huffman table has more codes than there are, which Pillow refuses when it decodes."""
    start = data.index(b"\xff\xc4") + 5
    return data[:start] + b"\x03\x00" + data[start + 2 :]


PROGRESSIVE = encode(picture("smooth", 60, 70), progressive=True)
GREY = encode(picture("smooth", 60, 70, 1))
PLAIN = [encode(picture("smooth", 50 + n, 60 + n, seed=n), subsampling=n % 3) for n in range(5)]


@pytest.mark.parametrize("options", [{}, {"decode": "accel"}, {"decode": "accel", "exact": False}], ids=str)
def test_files_go_where_they_are_decoded(options: dict[str, Any], decoded: dict[str, list[int]]) -> None:
    assert_equals_torchvision(batch_of([PLAIN[0], PROGRESSIVE, GREY, PROGRESSIVE, *PLAIN[1:]]), **options)
    assert decoded["device"] == [6]
    assert len(decoded["host"]) == 2


def test_the_host_decodes_if_asked_to(decoded: dict[str, list[int]]) -> None:
    assert_equals_torchvision(batch_of(PLAIN), decode="host")
    assert decoded["device"] == []
    assert len(decoded["host"]) == 5


def test_all_kinds_of_pictures(decoded: dict[str, list[int]]) -> None:
    def transform(image: Image.Image) -> torch.Tensor:
        return F.to_tensor(F.resize(image.convert("RGB"), [31, 22]))

    assert_equals_torchvision(lambda: stacked([each.open() for each in pictures()], transform))
    assert sum(decoded["device"]) >= len(pictures()) - 2


def test_nothing_to_decode_on_the_device(decoded: dict[str, list[int]]) -> None:
    assert_equals_torchvision(batch_of([PROGRESSIVE, PROGRESSIVE]))
    assert decoded["device"] == []


@pytest.mark.filterwarnings("ignore")
def test_a_flagged_file_is_decoded_by_the_host_alone(decoded: dict[str, list[int]]) -> None:
    streams = [*PLAIN[:2], damaged_in_the_scan(PLAIN[2]), *PLAIN[3:]]
    before = accel.stats()["fallbacks"].get(DECLINED, 0)
    found = assert_equals_torchvision(batch_of(streams))
    assert decoded["device"] == [5]
    assert len(decoded["host"]) == 1
    assert accel.stats()["fallbacks"][DECLINED] == before + 1
    assert not torch.equal(found[2], on_device(batch_of(PLAIN))[2])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("memory", [1, 200_000])
def test_flagged_files_in_chunks(memory: int) -> None:
    streams = [damaged_in_the_scan(each) if n % 2 else each for n, each in enumerate(PLAIN)]
    assert_equals_torchvision(batch_of(streams), memory=memory)


@pytest.mark.filterwarnings("ignore")
def test_errors_name_the_first_file_that_fails() -> None:
    streams = list(PLAIN)
    streams[1] = damaged_in_the_scan(PLAIN[1])
    streams[2] = without_a_good_table(PLAIN[2])
    with pytest.raises(accel.DecodeError, match=r"\(image 2 of a batch of 5\)") as caught:
        on_device(batch_of(streams))
    assert caught.value.position == 2
    streams[4] = undecodable()  # the header says so, and the host knows it first
    with pytest.raises(accel.DecodeError, match=r"\(image 2 of a batch of 5\)"):
        on_device(batch_of(streams))
    streams[0], streams[2] = undecodable(), PLAIN[2]
    with pytest.raises(accel.DecodeError, match=r"\(image 0 of a batch of 5\)"):
        on_device(batch_of(streams))


@pytest.mark.filterwarnings("ignore")
def test_flagged_files_that_nobody_can_decode_are_replaced() -> None:
    streams = [*PLAIN[:4], without_a_good_table(PLAIN[4])]
    found = on_device(batch_of(streams), on_error="replace")
    expected = on_device(batch_of(PLAIN))
    assert_same(found[:4], expected[:4])
    assert not found[4].any()


def test_a_decoder_that_disagrees_is_not_used(monkeypatch: pytest.MonkeyPatch, decoded: dict[str, list[int]]) -> None:
    monkeypatch.setattr(agreement, "agrees", lambda name, function: False)
    with accel.image_backend("cuda", device=DEVICE, prefetch=5):  # a backend of its own
        found = testing.computed(batch_of(PLAIN)())
    assert_same(found, on_device(batch_of(PLAIN), decode="host"))
    assert decoded["device"] == []


def test_one_that_is_wrong_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    decoder = inside.engine(DEVICE).jpeg
    read = cuda_jpeg.Decoding.read
    monkeypatch.setattr(cuda_jpeg.Decoding, "read", lambda *arguments: read(*arguments) ^ 1)
    assert not decoder.agrees()
    assert not decoder.agrees()
    assert "accel on the device disagrees with the installed Pillow and is not used" in accel.stats()["fallbacks"]


@host_only
def test_everything_is_queued_before_anything_is_waited_for(
    launched: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:

    class Mark:
        def __init__(self) -> None:
            self.place = len(launched)

        def query(self) -> bool:
            return False

        def synchronize(self) -> None:
            launched.append((f"waited for {launched[self.place - 1][0]}", 0))

    on_device(batch_of(PLAIN), prefetch=6)  # a backend of its own, whose buffers keep these marks
    monkeypatch.setattr(host.HostDevice, "mark", lambda self: Mark())
    launched.clear()
    on_device(batch_of(PLAIN), prefetch=6)
    happened = [each for each, _ in launched]
    assert [each for each in happened if each.startswith("waited")] == ["waited for pass3"]


@pytest.mark.parametrize("box", [(0, 0, 300, 400), (100, 100, 20, 30)])
def test_the_budget_knows_what_decoding_takes(box: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    seen = inside.executions(monkeypatch)
    monkeypatch.setattr(agreement, "agrees", lambda *_: True)
    for subsampling, quality in ((0, 95), (2, 30)):
        data = encode(picture("noise", 300, 400), subsampling=subsampling, quality=quality, restart_marker_blocks=1)
        with accel.image_backend("cuda", device=DEVICE):
            lazy: Any = F.to_tensor(F.crop(Image.open(BytesIO(data)), *box))
            planned = plan(lazy.lazy.recipes)
            sources = [each.source for each in planned.decodes]
            table = table_of([source.header for source in sources])
            estimate = requests.device_bytes(sources, table, *finished.wanted_of(planned)).sum()
            testing.computed(lazy)
        made = seen[-1].finished
        assert made.batch is not None
        taken = made.batch.scratch + made.summary.files
        assert taken <= estimate <= 3 * taken


def test_a_batch_of_many(decoded: dict[str, list[int]]) -> None:
    streams = [jpeg(40 + n % 30, 50 + n % 17, seed=n) for n in range(150)]
    found = on_device(lambda: stacked([Image.open(BytesIO(each)) for each in streams], _small))
    assert decoded["device"] == [150]
    expected = np.stack([np.asarray(_small(Image.open(BytesIO(each)))) for each in streams])
    assert np.array_equal(found.numpy(), expected)


def _small(image: Image.Image) -> torch.Tensor:
    return F.pil_to_tensor(F.resize(image, [9, 8]))


# -- odd and mutated files -------------------------------------------------------------------------------------------


BATCH = 64
NOTHING = Corpus(())


def check(numbers: range) -> tuple[int, list[str]]:
    """The number of files that were decoded, and what is not Pillow's."""
    decoded, wrong = 0, list[str]()
    for first in range(numbers.start, numbers.stop, BATCH):
        some = range(first, min(first + BATCH, numbers.stop))
        taken, differ = check_on_device({n: make(recipe(n, "", NOTHING), "", NOTHING) for n in some})
        decoded, wrong = decoded + taken, wrong + differ
    return decoded, wrong


@host_only
def test_all_that_is_decoded_is_pillows(thorough: bool) -> None:
    count = 5000 if thorough else 500
    decoded, wrong = check(range(count))
    assert wrong == []
    assert decoded > count / 10


@host_only
def test_another_picture_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    read = cuda_jpeg.Decoding.read
    monkeypatch.setattr(cuda_jpeg.Decoding, "read", lambda *arguments: read(*arguments) ^ 1)
    decoded, wrong = check(range(40))
    assert len(wrong) == decoded > 0
