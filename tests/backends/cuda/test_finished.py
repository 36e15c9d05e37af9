"""Work that a DataLoader's worker has finished: the same values as if it were planned where it runs."""

import copy
import pickle
from io import BytesIO
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision import transforms as T
from torchvision.transforms import v2

import accel
from accel.backends.cuda import budget, columns, finished
from accel.backends.cuda.backend import CudaBackend, CudaOptions
from accel.backends.cuda.execution import HostMemory
from accel.backends.cuda.finished import Finished, Section
from accel.backends.cuda.jpeg import requests
from accel.backends.cuda.jpeg.layout import PICTURE
from accel.backends.cuda.pinned_pool import PinnedPool
from accel.codec import stream_index
from accel.codec.header import Raw
from accel.errors import DecodeError
from accel.planning.plan import plan as plan_of
from accel.processes import sent_files, uses
from accel.recipes.arrived import Arrived
from accel.recipes.recipe import Source, Step
from accel.recipes.rows import Form, Rows, Structure
from accel.recipes.sources import Files
from accel.runtime import picture_memory, worker_batches
from accel.system import memory
from tests.backends.cuda.cropped import COLOUR, CROP, DAMAGED, FILES, cropped, outcome, sources, values
from tests.support import helpers, inside
from tests.support.cuda import needs_compiler, watch_finished_work
from tests.support.helpers import assert_same
from tests.support.rows import random_rows

pytestmark = needs_compiler


def sent(rows: Any) -> Any:
    """The rows as the parent gets them from a worker."""
    packed = sent_files.pack(rows)
    assert packed is not None
    return sent_files.unpack(packed)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What ran, in order: finished work, or files that the parent's decoder was asked for."""
    return watch_finished_work(monkeypatch)


@pytest.mark.parametrize("decode", ["accel", "host"])
@pytest.mark.parametrize("seed", range(20))
def test_any_rows(seed: int, decode: str, made: list[str]) -> None:
    with accel.image_backend("cuda", device="cpu", threads=1, decode=decode):
        rows, before = random_rows(np.random.default_rng(seed), sources(FILES)), accel.stats()["fallbacks"]
        found = sent(rows)
        again = values(found, bool(seed % 2))
        assert accel.stats()["fallbacks"] == before
        assert torch.equal(again, values(list(rows), bool(seed % 2)))
    takes = decode == "accel"
    assert isinstance(found, Arrived) == takes
    assert made.count("finished") == takes


VALUES = T.ToTensor(), T.Normalize((0.4,), (0.2,))
POLICIES: dict[str, Any] = {
    "RandAugment": T.Compose([T.Resize((40, 32)), T.RandAugment(3), *VALUES]),
    "TrivialAugmentWide": T.Compose([T.RandomResizedCrop(32), T.TrivialAugmentWide(), *VALUES]),
    "ColorJitter": T.Compose([T.RandomResizedCrop(32), T.ColorJitter(0.4, 0.4, 0.4, 0.1), *VALUES]),
    "grey": T.Compose([T.Grayscale(), T.RandomRotation(20), T.Resize((20, 30)), *VALUES]),
    "Lanczos": T.Compose([T.RandomResizedCrop(24, interpolation=T.InterpolationMode.LANCZOS), *VALUES]),
}


@pytest.mark.parametrize("name", POLICIES)
def test_policies(name: str, made: list[str]) -> None:
    """Images of different steps, one of which the host decodes, in either memory order."""

    def batch() -> list[torch.Tensor]:
        helpers.seed_everything(5)
        return [POLICIES[name](Image.open(BytesIO(data)).convert("RGB")) for data in 2 * FILES]

    expected = torch.stack(batch())
    with accel.image_backend("cuda", device="cpu", threads=1):
        before = accel.stats()["fallbacks"]
        recipes = tuple([each.lazy.recipes[0] for each in batch()])  # type: ignore[attr-defined]
        found = sent(recipes)
        for interleaved in (False, True):
            assert torch.equal(values(found, interleaved), expected)
        assert torch.equal(values(found.then(*to(torch.float16))), expected.half())
        assert accel.stats()["fallbacks"] == before
        assert made.count("finished") == 3
        assert list(map(repr, found)) == list(map(repr, recipes))
        assert list(map(repr, pickle.loads(pickle.dumps(found))[2:4])) == list(map(repr, recipes[2:4]))
        (again,) = found[5:6].sources if isinstance(found.recipes, Rows) else [found[5].source]
        assert again is found.sources[5]


def test_there_is_room_for_what_the_host_decodes() -> None:
    """In three channels, of which one is left."""
    steps = T.Compose([T.Grayscale(), T.RandomRotation(20), T.Resize((20, 30)), T.ToTensor()])
    files = [*COLOUR[:1], *(helpers.jpeg(400, 300, seed=n, progressive=True) for n in range(6))]
    with accel.image_backend("cuda", device="cpu", threads=1):
        before = accel.stats()["fallbacks"]
        found = sent(tuple([steps(Image.open(BytesIO(data))).lazy.recipes[0] for data in files]))
        assert accel.stats()["fallbacks"] == before
        assert isinstance(found, Arrived)


@pytest.mark.parametrize("last", [v2.JPEG(50), T.RandomErasing(1.0)])
def test_what_only_the_parent_can_plan(last: Any) -> None:
    """What a device must have tried, and tensors among the steps."""
    steps = T.Compose([T.Resize((40, 32)), *((last, VALUES[0]) if isinstance(last, v2.JPEG) else (VALUES[0], last))])
    with accel.image_backend("cuda", device="cpu", threads=1):
        recipes = [steps(Image.open(BytesIO(data)).convert("RGB")).lazy.recipes[0] for data in COLOUR]
        packed = sent_files.pack(tuple(recipes))
        assert packed is None or not isinstance(sent_files.unpack(packed), Arrived)


def to(*dtypes: torch.dtype) -> tuple[Step, ...]:
    return tuple(("to", (dtype,)) for dtype in dtypes)


@pytest.mark.parametrize("as_floats", [True, False])
@pytest.mark.parametrize("interleaved", [True, False])
@pytest.mark.parametrize(
    ("casts", "used"),
    [
        ((), to(torch.float16)),
        ((), to(torch.bfloat16, torch.float32)),
        ((), to(torch.int32)),
        (to(torch.float16), to(torch.float16)),
        (to(torch.int16), to(torch.int16, torch.float64)),
        (to(torch.float16), ()),
        (to(torch.float16), to(torch.bfloat16)),
        ((), (*to(torch.float64), ("hflip", ()))),
    ],
)
def test_any_use_of_work_for_any_other(
    casts: tuple[Step, ...], used: tuple[Step, ...], interleaved: bool, as_floats: bool, made: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """In another dtype or memory order than a worker expected, with exactly the values of torch's own casts."""
    with accel.image_backend("cuda", device="cpu", threads=1):
        rows = cropped(COLOUR)
        if not as_floats:
            rows = Rows(rows.sources, Structure.of(*CROP.forms[:-1], Form("pil_to_tensor")), rows.numbers)
        monkeypatch.setattr(uses, "expected", lambda: uses.Use(interleaved, casts))
        found, before = sent(rows), accel.stats()
        assert isinstance(found, Arrived)
        for wanted in (True, False):
            made.clear()
            expected = values(list(rows))
            for name, params in used:
                expected = expected.to(*params) if name == "to" else expected.flip(-1)
            expected = expected.contiguous(memory_format=torch.channels_last if wanted else torch.contiguous_format)
            later = found.then(*used)
            assert later.then().since == used
            got = values(later, wanted)
            assert_same(got, expected)
            now = accel.stats()
            fits = used[: len(casts)] == casts and used[-1:] != (("hflip", ()),)
            fits = fits and not (as_floats and casts == () and used == to(torch.int32))
            assert ("finished" in made) == fits
            reasons = [reason for reason in now["fallbacks"] if "a worker had finished" in reason]
            again = sum(now["fallbacks"][reason] - before["fallbacks"].get(reason, 0) for reason in reasons)
            assert again == (not fits)
            converted = now["converted"] - before["converted"]
            assert converted == (len(rows) if fits and (used != casts or wanted != interleaved) else 0)
            before = now


def test_a_float_becomes_an_integer_on_the_host_only() -> None:
    assert worker_batches.exact(torch.float32, to(torch.float16, torch.float64))
    assert worker_batches.exact(torch.uint8, (*to(torch.int64, torch.float32), ("contiguous", (torch.channels_last,))))
    assert not worker_batches.exact(torch.float32, to(torch.float16, torch.uint8))
    assert not worker_batches.exact(torch.uint8, to(torch.float16, torch.bool))


def test_a_source_is_made_when_it_is_asked_for(made: list[str]) -> None:
    with accel.image_backend("cuda", device="cpu", threads=1):
        rows = cropped(COLOUR)
        found = sent(rows)
        assert isinstance(found.sources, Files)
        values(found)
        assert found.selection == rows.selection
        assert not found.sources._made
        assert made == ["finished"]
        assert list(map(repr, found)) == list(map(repr, rows))
        assert [bytes(each.data) for each in found.sources] == COLOUR
        assert found.sources[1] is found[1].source is found[1:3].sources[0]
        for copied in (pickle.loads(pickle.dumps(found)), copy.deepcopy(found)):
            assert torch.equal(values(copied), values(list(rows)))


def test_files_that_the_host_decodes_are_holes(made: list[str]) -> None:
    progressive = helpers.jpeg(48, 40, progressive=True)
    with accel.image_backend("cuda", device="cpu", threads=1):
        rows = cropped([*COLOUR[:2], progressive, *COLOUR[2:], progressive])
        found = sent(rows)
        assert torch.equal(values(found), values(list(rows)))
        assert made[0] == "finished"
        assert set(found.sources._made) == {2, len(rows) - 1}  # type: ignore[union-attr]


@pytest.mark.parametrize("count", [0, 1, 4])
def test_only_files_for_the_device_are_copied(count: int, made: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Out of memory that is not locked, where a worker has finished nothing."""
    copied: list[bytes] = []

    def noted(gather: Any, memory: HostMemory, contents: Any) -> Any:
        copied.extend(map(bytes, contents))
        return gather(memory, contents)

    monkeypatch.setattr(CudaBackend, "room_ahead", lambda *_: 0)
    progressive = helpers.jpeg(48, 40, progressive=True)
    with accel.image_backend("cuda", device="cpu", threads=1):
        rows = cropped([each for file in COLOUR[:count] for each in (progressive, file)] or [progressive])
        found, expected = sent(rows), values(list(rows))
        assert isinstance(found.sources, Files)
        inside.wrap(monkeypatch, HostMemory, "gather", noted)
        assert torch.equal(values(found), expected)
    assert copied == COLOUR[:count]
    assert made[-1] == ("files" if count else "pixels")


def test_a_damaged_file_is_named_with_its_place(made: list[str]) -> None:
    with accel.image_backend("cuda", device="cpu", threads=1):
        assert outcome(sent(cropped(DAMAGED))) == outcome(list(cropped(DAMAGED)))
    with accel.image_backend("cuda", device="cpu", threads=1, on_error="replace"):
        assert torch.equal(values(sent(cropped(DAMAGED))), values(list(cropped(DAMAGED))))
    assert made.count("finished") == 2


def test_the_first_image_that_fails_speaks_for_the_batch(made: list[str]) -> None:
    """One that the device flags, and one that the host cannot decode, in either order."""
    on_host = helpers.undecodable()
    flagged = bytearray(helpers.jpeg(200, 175, seed=3))
    counts = flagged.index(b"\xff\xc4") + 5  # of a Huffman table: more short codes than there can be
    flagged[counts : counts + 16] = bytes([3, sum(flagged[counts : counts + 16]) - 3, *[0] * 14])
    for files in ([*COLOUR[:2], bytes(flagged), on_host], [COLOUR[0], on_host, bytes(flagged), COLOUR[1]]):
        with accel.image_backend("cuda", device="cpu", threads=1):
            said = []
            for rows in (list(cropped(files)), sent(cropped(files))):
                with pytest.raises(DecodeError) as caught:
                    values(rows)
                said.append((caught.value.position, str(caught.value)))
            assert said[0] == said[1]
            assert said[0][0] == (2 if files[3] is on_host else 1)


@pytest.mark.parametrize("finished_by_worker", [True, False])
def test_a_buffer_is_given_back_once_where_that_is_interrupted(
    finished_by_worker: bool, made: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    given, give_back = list[int](), PinnedPool.give_back

    def interrupted(self: PinnedPool, memory: torch.Tensor, mark: Any) -> None:
        given.append(memory.data_ptr())
        give_back(self, memory, mark)
        if len(given) == 1:
            raise KeyboardInterrupt

    with accel.image_backend("cuda", device="cpu", threads=1, decode="accel" if finished_by_worker else "host"):
        rows: Any = sent(cropped(COLOUR)) if finished_by_worker else list(cropped(COLOUR))
        expected = values(rows)
        with monkeypatch.context() as patched:
            patched.setattr(PinnedPool, "give_back", interrupted)
            with pytest.raises(KeyboardInterrupt):
                values(rows)
        assert len(given) == len(set(given)) == 1
        assert torch.equal(values(rows), expected)
    assert ("finished" in made) == finished_by_worker


@pytest.mark.usefixtures("small_batches_indexed")
def test_indexes_are_made_and_used(made: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    files = [helpers.jpeg(400, 300 + 16 * n, seed=n, restart_marker_blocks=7 * (n % 2)) for n in range(5)]
    key = (7, 7, 7, 7)
    with accel.image_backend("cuda", device="cpu", threads=1):
        before, expected = accel.stats(), values(list(cropped(files)))
        for epoch in range(3):
            found = sent(cropped(files, key))
            assert torch.equal(values(found), expected)
            stats = accel.stats()
            assert stats["indexes"] - before["indexes"] == 5
            assert stats["indexed"] - before["indexed"] == 5 * epoch
            assert stats["indexes dropped"] == before["indexes dropped"]
        stream_index.flush()
    assert made.count("finished") == 3


@pytest.mark.parametrize("by_worker", [True, False])
def test_small_batches_have_no_indexes(by_worker: bool, made: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    files = [helpers.jpeg(400, 300 + 16 * n, seed=n) for n in range(4)]
    size, key, indexed = sum(map(len, files)), (8, 8, 8, int(by_worker)), []
    with accel.image_backend("cuda", device="cpu", threads=1):
        expected = values(list(cropped(files)))
        for least in (size + 1, size, size, size + 1):
            monkeypatch.setattr(requests, "INDEXED", least)
            before, rows = accel.stats(), cropped(files, key)
            assert torch.equal(values(sent(rows) if by_worker else list(rows)), expected)
            after = accel.stats()
            indexed.append([after[name] - before[name] for name in ("indexes", "indexed")])
            assert (f"fewer than {least} bytes" in explained(rows)) == (least > size)
        stream_index.flush()
    assert indexed == [[0, 0], [4, 0], [0, 4], [0, 0]]
    assert ("finished" in made) == by_worker


def explained(rows: Rows) -> str:
    return "\n".join(CudaBackend(CudaOptions(device="cpu")).describe(plan_of(list(rows))))


def test_chunks(made: list[str]) -> None:
    with accel.image_backend("cuda", device="cpu", threads=1, memory=100_000):
        rows = cropped(COLOUR)
        assert torch.equal(values(sent(rows)), values(list(rows)))
    assert "finished" not in made  # a part of it is no finished work
    assert sum(count for reason, count in accel.stats()["fallbacks"].items() if "again, in chunks" in reason) > 1


def test_the_host_needs_memory_for_what_is_sent(made: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """What the device needs besides is not the host's, as long as it decodes nothing."""
    monkeypatch.setattr(picture_memory, "memory", lambda: 1 << 20 << 4)
    with accel.image_backend("cuda", device="cpu", threads=1):
        rows = cropped([helpers.jpeg(400, 300, seed=n) for n in range(8)])
        found = sent(rows)
        assert isinstance(found, Arrived)
        said = Finished.of(found.ahead).summary
        sent_bytes, taken = said.sent, said.taken
        assert sum(Finished.of(found.ahead)[Section.BYTES]) == taken > 1 << 20 > sent_bytes
        assert torch.equal(values(found), values(list(rows)))
        assert made.count("finished") == 1
        monkeypatch.setattr(picture_memory, "memory", lambda: 16 * (sent_bytes - 1))
        assert torch.equal(values(sent(rows)), values(list(rows)))
        assert made.count("finished") == 1


def test_sizes_are_those_of_the_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    monkeypatch.setattr(
        budget.Budget, "in_chunks", lambda _, plan, run, sizes, *limits: found.append(sizes(plan).tolist())
    )
    with accel.image_backend("cuda", device="cpu", threads=1):
        rows = cropped([*COLOUR, helpers.jpeg(48, 40, progressive=True)])
        for each in (rows, sent(rows), list(rows)):
            values(each)
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("way", ["it fails", "it is larger than was said", "there is no room for it"])
def test_what_cannot_be_finished_is_counted_and_planned(
    way: str, made: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> Any:
        raise ValueError("no")

    if way == "it fails":
        monkeypatch.setattr(CudaBackend, "ahead", broken)
    elif way == "there is no room for it":
        monkeypatch.setattr(CudaBackend, "room_ahead", broken)
    else:
        monkeypatch.setattr(finished, "room", lambda *_: 64)
    with accel.image_backend("cuda", device="cpu", threads=1):
        before = accel.stats()["fallbacks"]
        rows = cropped(COLOUR)
        found = sent(rows)
        assert torch.equal(values(found), values(list(rows)))
        now = accel.stats()["fallbacks"]
    reasons = {reason for reason in now if now[reason] > before.get(reason, 0)}
    said = "what a worker had planned ahead found no room beside the files; the parent planned it"
    assert reasons == {
        said if way == "it is larger than was said" else "a worker could not plan a batch ahead: ValueError: no"
    }
    assert not isinstance(found, Arrived)
    assert "finished" not in made


@pytest.mark.parametrize("change", ["raw", "twice", "steps with tensors"])
def test_what_is_not_sent_as_files(change: str) -> None:
    with accel.image_backend("cuda", device="cpu", threads=1):
        rows = cropped(COLOUR)
        if change == "raw":
            source = Source(bytes(20 * 20 * 3), Raw(20, 20, "RGB"), "pixels", rows.selection)
            rows = Rows([*rows.sources[:-1], source], rows.structure, rows.numbers)
        elif change == "twice":
            rows = Rows([rows.sources[0]] * len(rows), rows.structure, rows.numbers)
        else:
            erase = Form("erase", (0, 0, 2, 2, torch.zeros(3, 2, 2)))
            rows = Rows(rows.sources, Structure.of(*CROP.forms, erase), rows.numbers)
        assert sent_files.pack(rows) is None


def test_a_format_of_another_version_is_refused() -> None:
    with accel.image_backend("cuda", device="cpu", threads=1):
        packed = sent_files.pack(cropped(COLOUR))
    assert packed is not None
    packed.data.numpy()[: sent_files.HEADER].view(np.int64)[sent_files.Word.VERSION] += 1
    with pytest.raises(RuntimeError, match=f"in format {sent_files.VERSION + 1}, and not in {sent_files.VERSION}"):
        sent_files.unpack(packed)


def test_places_of_structures() -> None:
    """The words that become addresses are those of all fields of 64 bits, and no others."""
    items = np.zeros(3, PICTURE)
    fields = finished._words(PICTURE)
    fixups, words = np.empty(3 * len(fields), np.int32), items.view(np.uint64)
    nothing = np.zeros((0, 3), np.int64), np.zeros(0, np.int64)
    columns.write_items(items.view(np.uint8), 0, *nothing, fields, 0, 0, words, fixups, 0)
    words[fixups] = 1
    for name in PICTURE.names or ():
        field = items[name]
        if name == "components":
            assert all((field[each] == (each == "plane")).all() for each in field.dtype.names)
        else:
            assert (field == (field.dtype == np.uint64)).all(), name


def test_slots_stay_as_long_as_somebody_looks() -> None:
    lent = memory.lease(np.zeros(1 << 20, np.uint8), 1 << 20)
    gone: list[int] = []
    lent.on_release = lambda: gone.append(1)
    with accel.image_backend("cuda", device="cpu", threads=1):
        packed = sent_files.pack(cropped(COLOUR))
        assert packed is not None
        lent[: len(packed.data)] = packed.data.numpy()
        found = sent_files.unpack(sent_files.SentFiles(torch.from_numpy(lent)))
        del lent
        source = found.sources[2]
        values(found)
        del found
        assert not gone
        assert bytes(source.data) == COLOUR[2]
        del source
        assert gone
