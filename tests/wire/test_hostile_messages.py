"""Messages that are cut, damaged, forged or of another version: refused by name, and no memory is taken for them."""

import gc
import json
import os
import re
import tracemalloc
import weakref
from collections.abc import Callable
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision import transforms as T
from torchvision.transforms import InterpolationMode
from torchvision.transforms import functional as F

import accel
from accel import wire
from accel.ops import OPS
from accel.processes import switch
from accel.wire import frame, steps
from accel.wire.frame import Array
from bench.fuzz import __main__ as fuzz
from bench.fuzz import messages, run
from bench.fuzz.recipes import Corpus
from tests.support import helpers
from tests.support.damage import sized
from tests.support.exact import TRAIN
from tests.support.processes import linux

FILE = helpers.jpeg(64, 48)
KEPT = Path(__file__).with_name("format_1.msg")
VALUES = "39747b34c6b4453ee0d0d51aeff1d453760f16540915b53a332139a560e5dd74"  # of torchvision's batch


def message(*transforms: Callable[[Any], Any], data: bytes = FILE) -> bytes:
    """The message of (image after transforms, 7), with a right checksum whatever the file is."""
    with accel.image_backend("cpu", threads=1):
        image = Image.open(BytesIO(FILE))
        for transform in transforms:
            image = transform(image)
        whole = wire.dumps((image, 7))
    return whole if data is FILE else forged(lambda header, arrays: arrays.append(of(data, arrays.pop())), whole)


def of(data: bytes, array: Array) -> Array:
    return Array("U8", (len(data),), np.frombuffer(data, np.uint8))


def forged(change: Callable[[Any, Any], object], whole: bytes) -> bytes:
    """The message with a changed header or changed arrays, under a right checksum."""
    header, arrays = frame.opened(whole)
    change(header, arrays)
    return frame.sealed(header, arrays)


def sealed(whole: bytes) -> bytes:
    changed = np.frombuffer(bytearray(whole), np.uint8)
    changed[12:16].view("<u4")[:] = frame.checksum(changed)
    return changed.tobytes()


def refused(whole: Any, match: str = ".", kind: type[Exception] = wire.WireError) -> None:
    with accel.image_backend("cpu", threads=1), pytest.raises(kind, match=match):
        wire.loads(whole)


def test_cut_messages() -> None:
    whole = message(F.to_tensor)
    for size in [*range(0, 300, 7), *range(300, len(whole), 101), len(whole) - 1]:
        refused(whole[:size], "cut|no message")
    refused(whole + b"\0", "something was added")
    refused(b"something else, of more than the 64 bytes that a message has at least", "no message")


def test_a_message_cut_in_a_batch_is_named() -> None:
    whole = message(F.to_tensor)
    with accel.image_backend("cpu", threads=1), pytest.raises(wire.WireError, match=r"cut.*\(message 1 of 3\)"):
        wire.collate([whole, whole[:-9], whole])


def test_every_flipped_bit_is_seen() -> None:
    whole = message(F.to_tensor)
    for at in [*range(frame.ALIGNED), *range(frame.ALIGNED, len(whole), 13)]:
        changed = bytearray(whole)
        changed[at] ^= 1 << at % 8
        refused(bytes(changed))


def test_another_version_is_named() -> None:
    changed = bytearray(message(F.to_tensor))
    changed[8] = 2
    refused(bytes(changed), "version 2, and this version of accel reads 1")


def test_a_message_of_another_version_of_accel(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is read; if it has what this version does not know, both versions are named."""
    monkeypatch.setattr(frame, "__version__", "0.9 " + "x" * 1000)
    whole = message(T.Resize(30), F.to_tensor)
    assert wire.loads(whole)[1] == 7
    newer = forged(lambda header, arrays: header["steps"][0].__setitem__(0, "sharpen"), whole)
    refused(newer, f"'sharpen' is none.*accel '0.9 x{{1,16}} made it, and this is {re.escape(accel.__version__)}")


def test_a_message_of_format_1_is_read() -> None:
    """A file that the first version wrote: training crops of a made picture, a batch of two, their labels, more."""
    with accel.image_backend("cpu", threads=1):
        found = wire.loads(KEPT.read_bytes())
        images = found["image"].add(0)
    assert found["label"].tolist() == [3, 1]
    assert found["more"] == ("a", None, [0.5, b"b"])
    assert sha256(images.contiguous().numpy().tobytes()).hexdigest() == VALUES


def lie(header: Any, whole: list[int]) -> None:
    header["sample"][1][3] = [False, False, whole, False]


def boxes(header: Any, arrays: Any, name: str, *more: Any) -> None:
    arrays.append(frame.array_of(torch.zeros(1, 4)))
    header["sample"] = [name, ["tensor", len(arrays) - 1], *more]


HUGE = [0, -1, 65501, 1 << 31, 1 << 62, 1 << 70]
FORGED: dict[str, Callable[[Any, Any], object]] = {
    "no images": lambda header, arrays: header.pop("recipes"),
    "a reference to no step": lambda header, arrays: header["recipes"][0][1].append(99),
    "a reference before the first": lambda header, arrays: header["recipes"][0].__setitem__(0, -1),
    "a reference by name": lambda header, arrays: header["recipes"][0].__setitem__(0, "0"),
    "an array that is not there": lambda header, arrays: header["sources"][0].__setitem__(1, 5),
    "no size of a picture": lambda header, arrays: header["sources"][0].__setitem__(3, 48.0),
    "another kind of source": lambda header, arrays: header["sources"][0].__setitem__(2, "path"),
    "an op that there is not": lambda header, arrays: header["steps"][0].__setitem__(0, "eval"),
    "a step too many": lambda header, arrays: header["recipes"][0].__setitem__(1, [0] * 65),
    "deep lists": lambda header, arrays: header.__setitem__("sample", nested(100_000)),
    "a leaf that there is not": lambda header, arrays: header.__setitem__("sample", ["object", "os.system"]),
    "an image that is a tensor": lambda header, arrays: header.__setitem__("sample", ["image", 0]),
    "more images than there are": lambda header, arrays: header["sample"][1].__setitem__(1, [2]),
    "no images at all": lambda header, arrays: header["sample"][1].__setitem__(1, [0]),
    "very many images": lambda header, arrays: header["sample"][1].__setitem__(1, [1 << 40]),
    "memory of no order": lambda header, arrays: header["sample"][1].__setitem__(3, [1, 0, None, False]),
    "memory that is too small": lambda header, arrays: lie(header, [9, 9]),
    "huge memory": lambda header, arrays: lie(header, [1 << 40] * 2),
    **{
        f"a shape of {n}": lambda header, arrays, n=n: arrays.append(Array("U8", (n, n), arrays[0].content))
        for n in HUGE[1:]
    },
    "a dtype that there is not": lambda header, arrays: arrays.append(Array("OBJECT", (1,), arrays[0].content)),
    "an array twice": lambda header, arrays: header["sources"].append(header["sources"][0]),
    "a label twice": lambda header, arrays: (
        arrays.append(Array("U8", (2,), arrays[0].content[:2])),
        header.__setitem__("sample", ["list", ["tensor", 1], ["tensor", 1]]),
    ),
    "an image twice": lambda header, arrays: header.__setitem__("sample", ["list", *[header["sample"][1]] * 2]),
    "a name that there is not": lambda header, arrays: header.__setitem__("more", []),
    "no sample": lambda header, arrays: header.pop("sample"),
    "many axes": lambda header, arrays: header["sample"][1].__setitem__(1, [1] * 50_000),
    "many keys": lambda header, arrays: header.__setitem__("sample", ["dict", *[[n, 0] for n in range(1001)]]),
    "a mask and more": lambda header, arrays: boxes(header, arrays, "tv Mask", 1),
    "boxes of no format": lambda header, arrays: boxes(header, arrays, "boxes", 3, 9, 9),
    "boxes of a number too few": lambda header, arrays: boxes(header, arrays, "boxes", "XYWHR", 9, 9),
    "boxes of another mode": lambda header, arrays: boxes(header, arrays, "boxes", "XYXY", 9, 9, "no"),
    "pixels of no size": lambda header, arrays: header.__setitem__("sources", [["", 0, "pixels"]]),
}


def nested(depth: int) -> Any:
    found: Any = ["list"]
    for _ in range(depth):
        found = ["list", found]
    return found


@pytest.mark.parametrize("name", FORGED)
def test_forged_messages(name: str) -> None:
    """Under a right checksum."""
    whole = message(T.Resize(30), F.to_tensor)
    if name == "deep lists":
        text = json.dumps({**frame.opened(whole)[0], "sample": 0}).replace('"sample": 0', '"sample": ' + "[" * 100_000)
        begin, size = frame.ALIGNED, len(text)
        head = bytearray(whole[:begin])
        head[16:24] = size.to_bytes(8, "little")
        refused(sealed(resized(bytes(head) + text.encode())), "cannot be read")
        return
    refused(forged(FORGED[name], whole))


@pytest.mark.parametrize("text", [b"\xef\xbb\xbf{}", '{"sample":1}'.encode("utf-16"), b'{"sample":1,"sample":2}'])
def test_headers_that_are_read_in_two_ways(text: bytes) -> None:
    head = message()[: frame.ALIGNED]
    whole = head[:16] + len(text).to_bytes(8, "little") + head[24:] + text + bytes(-len(text) % frame.ALIGNED)
    refused(sealed(resized(whole)), "header is wrong: .*(BOM|decode|twice)")


def test_parts_that_are_not_filled_up_with_zeros() -> None:
    whole = bytearray(message(data=FILE + b"\0"))
    for at in (40, frame.ALIGNED + int.from_bytes(whole[16:24], "little"), len(whole) - 1):
        assert whole[at] == 0
        changed = whole.copy()
        changed[at] = 1
        refused(sealed(bytes(changed)), "filled up with zeros")


def test_a_step_with_an_array_is_of_one_image() -> None:
    whole = message(F.to_tensor, lambda tensor: F.erase(tensor, 10, 10, 20, 20, torch.ones(1)))
    refused(forged(lambda header, arrays: header["recipes"].append(header["recipes"][0]), whole), "image 1: .*taken")


def test_hostile_text_is_cut_and_escaped() -> None:
    for place, text in ((0, "\n" * 100_000), (2, "k" * 100_000)):
        whole = forged(
            lambda header, arrays, p=place, t=text: header["sources"][0].__setitem__(p, t), message(data=b"")
        )
        with accel.image_backend("cpu", threads=1), pytest.raises(accel.AccelError) as raised:
            wire.loads(whole)
        assert len(str(raised.value)) < 2500
        assert str(raised.value).isprintable()


def resized(whole: bytes) -> bytes:
    return whole[:24] + len(whole).to_bytes(8, "little") + whole[32:]


CROP, RESIZE = ["crop", 3, 4, 20, 30], ["resize", 20, 30, 2]


@pytest.mark.parametrize(
    "step",
    [
        *(["crop", 0, 0, n, 9] for n in HUGE),
        *(["crop", n, 0, 9, 9] for n in HUGE[3:]),
        *(["resize", 9, n, 2] for n in HUGE),
        ["resize", 60_000, 60_000, 2],
        ["resize", 9, 9, 77],
        ["resize", 9, 9, 10],
        ["resize", 9, 9],
        ["resize", 9.0, 9, 2],
        ["resize", True, 9, 2],
        ["resize_box", 9, 9, 2, ["tuple", -1.0, 0.0, 5.0, 5.0]],
        ["resize_box", 9, 9, 2, ["tuple", 0.0, 0.0, 65.0, 5.0]],
        ["reduce", 0, 1],
        ["pad", -1, 0, 0, 0, "constant", None],
        ["pad", 60_000, 60_000, 0, 60_000, "constant", None],
        ["pad", 1, 1, 1, 1, "wrap", None],
        ["pad", 1, 1, 1, 1, "constant", ["tuple", 1, 2, 300]],
        ["point", "text"],
        ["to_grayscale", 2],
        ["affine", 9, 9, ["tuple", 1.0, 0.5, 0.0, 0.0, 1.0], 0, ["tuple", 0]],
        ["affine", 9, 9, ["tuple", 1.0, 0.5, 0.0, 0.0, 1.0, 1e300], 0, ["tuple", 0]],
        ["affine", 9, 9, ["tuple", 1.0, 0.5, 0.0, 0.0, 1.0, ["float", "nan"]], 2, ["tuple", 0]],
        ["adjust_brightness", ["float", "inf"]],
        ["adjust_hue", 0.6],
        ["posterize", 9],
        ["gaussian_blur", 4, 3, 1.0, 1.0, 1],
        ["gaussian_blur", 999, 3, 1.0, 1.0, 1],
        ["box_blur", -1.0, 0.0],
        ["erase_image", 0, 0, 99, 99, ["bytes", 1]],
        ["permute_channels", ["tuple", 0, 1, 3]],
        ["elastic", ["bytes", 1], "bilinear", None, 1],
        ["normalize", ["tuple", 0.5], ["tuple", 0.5]],
        ["to", ["dtype", "C128"]],
        ["threads", 1 << 20],
        ["plus", ["tensor", 1]],
        ["mixup", 0.5],
        ["contiguous", None],
    ],
    ids=str,
)
def test_steps_that_accel_would_not_record(step: list[Any]) -> None:
    whole = message(lambda image: image.transpose(Image.Transpose.TRANSPOSE))

    def change(header: Any, arrays: Any) -> None:
        header["steps"][0] = step
        arrays.append(Array("U8", (2,), arrays[0].content[:2]))

    refused(forged(change, whole), f"step '{step[0]}'")


def test_a_size_of_true() -> None:
    """Found by mutated messages: torch takes no bool there."""
    of = steps.Values((3, 48, 64), torch.float32)
    for name, *more in (("v2.resize", InterpolationMode.BILINEAR, None, True), ("v1.resize", "bilinear", True)):
        steps.after(of, [(name, ((20, 30), *more))])
        for wrong in ((20, True), (20.0, 30), True):
            with pytest.raises(ValueError, match="parameters"):
                steps.after(of, [(name, (wrong, *more))])


def test_numbers_that_torch_cannot_use() -> None:
    """torchvision refuses them for float32 when the values are computed."""
    of = steps.Values((3, 48, 64), torch.float32)
    for name, *params in (("v1.pad", (1, 1), 1e300, "constant"), ("v2.adjust_sharpness", 1e300)):
        with pytest.raises(ValueError, match="parameters"):
            steps.after(of, [(name, tuple(params))])


def test_a_message_is_read_whatever_torch_is_set_to() -> None:
    blurred, bent = message(T.GaussianBlur(3)), message(T.ElasticTransform(20.0))
    with accel.image_backend("cpu", threads=1), torch.autocast("cpu"):
        assert wire.loads(blurred)[0].size == (64, 48)
    torch.set_default_dtype(torch.float64)
    try:
        with accel.image_backend("cpu", threads=1):
            assert wire.loads(bent)[0].size == (64, 48)
    finally:
        torch.set_default_dtype(torch.float32)


def test_a_message_starts_no_more_threads_than_there_are_processors() -> None:
    whole = message(F.to_tensor, lambda tensor: F.adjust_sharpness(tensor, 2.0))
    place = next(place for place, step in enumerate(frame.opened(whole)[0]["steps"]) if step[0] == "threads")
    changed = forged(lambda header, arrays: header["steps"][place].__setitem__(1, 1000), whole)
    with accel.image_backend("cpu", threads=1):
        _, (number,) = wire.loads(changed)[0].lazy.recipes[0].steps[place]
    assert number == os.cpu_count()
    assert any("more threads" in reason for reason in accel.stats()["fallbacks"])


def test_steps_in_an_order_that_accel_would_not_record() -> None:
    """A resize behind ``erase``, whose place would lie outside."""
    whole = message(F.to_tensor, lambda tensor: F.erase(tensor, 10, 10, 20, 20, torch.ones(1)))
    for late in (["resize", 12, 12, 2], ["crop", 0, 0, 12, 12]):

        def change(header: Any, arrays: Any, late: list[Any] = late) -> None:
            header["steps"].append(late)
            header["recipes"][0][1].append(len(header["steps"]) - 1)

        refused(forged(change, whole), "too late")


@pytest.mark.parametrize("name", OPS)
def test_every_op_is_checked_or_not_taken(name: str) -> None:
    """With parameters of types that it does not have."""
    op = OPS[name]
    for wrong in ("text", None, (), ("a",) * 9, b""):
        params = (wrong,) * len(op.params)
        if not params:
            params = (wrong,)
        for subject in (steps.Picture((3, 48, 64)), steps.Values((3, 48, 64), torch.float32)):
            with pytest.raises(ValueError):
                steps.after(subject, [(name, params)])


def test_pictures_beyond_pillows_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    whole, larger = message(), message(T.Pad(1))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 64 * 48 // 2 - 1)
    refused(whole, "Pillow's limit")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 64 * 48 // 2)
    with accel.image_backend("cpu", threads=1):
        assert wire.loads(whole)[0].size == (64, 48)
    refused(larger, "Pillow's limit")


def test_no_memory_is_taken_for_what_is_only_said() -> None:
    whole = message(T.Resize(30), F.to_tensor)
    tilted = (1.0, 0.0, 0.0, 0.0, 1.0, 0.0, -1 / 7.3, 0.0)  # its horizon is in the picture
    tracemalloc.start()
    steps.after(steps.Picture((3, 48, 64)), [("perspective", (13_000, 13_000, tilted, 2, (0, 0, 0)))])
    for name in ("very many images", "huge memory", f"a shape of {1 << 31}"):
        refused(forged(FORGED[name], whole))
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 1 << 22


@pytest.mark.parametrize(
    "data", [b"", b"text" * 99, FILE[:200], FILE[:-200], sized(FILE, 96, 64), helpers.jpeg(64, 48, "L")]
)
def test_files_that_are_not_what_the_message_says(data: bytes) -> None:  # fmt: skip
    """They are errors of an image, and replaced where damaged files are."""
    whole = message(T.CenterCrop(30), F.to_tensor, data=data)
    refused(whole, "file 0", accel.DecodeError)
    with accel.image_backend("cpu", on_error="replace", threads=1):
        image, label = wire.loads(whole)
        assert image.shape == (3, 30, 30)
        assert not image.any()
        assert label == 7
    assert accel.stats()["replaced"]


def test_many_black_pictures_take_the_memory_of_one() -> None:
    def change(header: Any, arrays: Any) -> None:
        for _ in range(300):
            arrays.append(Array("U8", (2,), np.zeros(2, np.uint8)))
            header["sources"].append(["", len(arrays) - 1, "pillow", 4000, 5000, 3])

    whole = forged(change, message(F.to_tensor))
    with accel.image_backend("cpu", on_error="replace", threads=1):
        tracemalloc.start()
        assert wire.loads(whole)[1] == 7
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert most < 2 * 60_000_000


def test_what_was_read_is_gone_with_its_last_reference() -> None:
    """No cycle keeps it until Python looks for some."""
    whole = wire.dumps([torch.ones(3)])
    gc.disable()
    try:
        found = wire.loads(whole)
        values = weakref.ref(found[0])
        del found
        assert values() is None
    finally:
        gc.enable()


def test_a_message_without_images_switches_no_backend_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(switch, "image_backend", None)
    assert wire.loads(wire.dumps([5])) == [5]


@linux
def test_mutated_messages(tmp_path: Path, thorough: bool) -> None:
    """None ends the process or raises another error. ``python -m bench.fuzz --messages`` tries more."""
    runner = run.Runner("tests", Corpus(()), run.Limits(), fuzz.MESSAGES)
    count = 20_000 if thorough else 300
    outcomes = {}
    for begin in range(0, count, 100):
        recipes = [messages.recipe(number, "tests", runner.corpus) for number in range(begin, begin + 100)]
        for result in runner.run(recipes):
            outcomes[result.outcome] = outcomes.get(result.outcome, 0) + 1
            assert not result.wrong, result
    assert outcomes.keys() == {"equal", "both refused"}


def test_the_training_pipeline_is_among_what_is_sent_whole() -> None:
    assert len(message(lambda image: image.convert("RGB"), TRAIN)) < len(FILE) + 2048
