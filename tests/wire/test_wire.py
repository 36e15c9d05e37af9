"""Messages of samples and batches: what comes out equals what torchvision makes on the sender's side."""

import subprocess
import sys
from collections import OrderedDict
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader
from torchvision import transforms as T
from torchvision import tv_tensors
from torchvision.io import decode_jpeg
from torchvision.transforms import functional as F

import accel
from accel import wire
from accel.lazy.tensor_base import is_lazy
from accel.ops import OPS
from accel.ops.row import Picture, TensorOp
from accel.recipes.arrived import Arrived
from accel.wire import steps
from tests.support import helpers
from tests.support.backends import Backend
from tests.support.cuda import needs_compiler
from tests.support.exact import EVAL, TRAIN
from tests.support.helpers import seed_everything
from tests.support.processes import ROOT, linux, plain
from tests.support.transforms import KINDS, OF_BOTH, OF_V2, SETTINGS, made

PICTURES = helpers.pictures()
pytestmark = pytest.mark.filterwarnings("ignore:The image decoding:DeprecationWarning")


def samples(transform: Any, count: int = 4) -> list[Any]:
    """(image, label) of the first pictures."""
    seed_everything(3)
    return [(transform(each.open().convert("RGB")), number) for number, each in enumerate(PICTURES[:count])]


def sent(transform: Any, **options: Any) -> list[bytes]:
    with accel.image_backend("cpu", threads=1):
        return [wire.dumps(each, **options) for each in samples(transform)]


def test_an_image_is_sent_as_its_file_and_its_steps(tmp_path: Path) -> None:
    """To another process, which has no files."""
    message, _, *_ = sent(TRAIN)
    assert len(message) < len(PICTURES[0].data) + 1024
    (tmp_path / "message").write_bytes(message)
    code = (
        "import sys, torch, accel\n"
        "image, label = accel.wire.loads(open(sys.argv[1], 'rb').read())\n"
        "assert type(image).__name__ == 'LazyTensor' and label == 0\n"
        "torch.save(image.add(0), sys.argv[2])\n"
    )
    arguments = [str(tmp_path / name) for name in ("message", "values")]
    subprocess.run([sys.executable, "-c", code, *arguments], cwd=ROOT, check=True, timeout=300)
    assert torch.equal(torch.load(arguments[1]), plain(lambda: samples(TRAIN))[0][0])


def test_the_same_sample_makes_the_same_bytes() -> None:
    assert sent(TRAIN) == sent(TRAIN)
    assert sent(TRAIN) != sent(EVAL)


@pytest.mark.parametrize("backend", ["cpu", "torchvision"])
def test_messages_of_several_senders_become_one_batch(backend: str) -> None:
    """With other steps and other sizes before them; also where no backend is in force."""
    grey = T.Compose([T.Grayscale(3), T.CenterCrop(64), T.ToTensor(), T.Normalize(helpers.MEAN, helpers.STD)])
    transforms = [TRAIN, EVAL, grey]
    expected = [each for transform in transforms for each in plain(lambda t=transform: samples(t))]
    messages = [message for transform in transforms for message in sent(transform)]
    with accel.image_backend(backend):
        images, labels = wire.collate(messages)
    assert is_lazy(images)
    assert images.shape == (len(expected), 3, 64, 64)
    assert torch.equal(images, torch.stack([image for image, _ in expected]))
    assert labels.tolist() == [label for _, label in expected]


def test_a_batch_is_sent_as_one_message(backend: Backend) -> None:
    """To a receiver of any backend; whatever the sender's is."""

    def batch() -> Any:
        images, labels = zip(*samples(TRAIN), strict=True)
        return {"image": torch.stack(images), "label": torch.tensor(labels), "path": [*map(str, labels)]}

    with accel.image_backend("cpu", threads=1):
        message = wire.dumps(batch())
    with backend.chosen():
        assert wire.dumps(batch()) == message
        found = wire.loads(message)
        assert is_lazy(found["image"])
        found["image"] = backend.computed(found["image"])
    helpers.assert_same(found, plain(batch))


def test_a_batch_makes_the_same_bytes_however_it_was_recorded() -> None:
    """As rows, or as recipes that share their steps; and a part of it is sent as such."""
    with accel.image_backend("cpu", threads=1):
        batch = torch.stack([image for image, _ in samples(TRAIN)])
        message = wire.dumps(batch)
        found = wire.loads(message)
        assert wire.dumps(found) == message
        assert len(message) < sum(len(each.data) for each in PICTURES[:4]) + 2048
        part = wire.dumps(found[1])
        assert len(part) < len(PICTURES[1].data) + 1024
        assert torch.equal(wire.loads(part), batch[1])


def test_the_digest_of_an_epoch_is_that_of_its_messages(backend: Backend, paths: list[str]) -> None:
    """So a receiver can prove that it computes what was recorded."""
    files = helpers.Files(paths, T.Compose([TRAIN, T.RandomErasing(1.0)]))
    with backend.chosen():
        seed_everything(3)
        expected = accel.digest(DataLoader(files, 4))
        messages = [wire.dumps(sample) for sample in DataLoader(files, None)]
        assert accel.digest(DataLoader(messages, 4, collate_fn=wire.collate)) == expected  # type: ignore[arg-type]
        messages[-1] = wire.dumps(files[len(paths) - 1])  # of another crop
        assert accel.digest(DataLoader(messages, 4, collate_fn=wire.collate)) != expected  # type: ignore[arg-type]


@linux
@needs_compiler
def test_nothing_that_a_worker_has_prepared_for_a_device_is_sent(paths: list[str]) -> None:
    """A worker's batch has the message of one that was recorded here."""
    files = helpers.Files(paths, T.Compose([T.Resize((16, 24)), T.ToTensor()]))
    with accel.image_backend("cuda", device="cpu"):
        (images, labels), (own, _) = (next(iter(DataLoader(files, 8, num_workers=workers))) for workers in (1, 0))
        assert isinstance(images.lazy.recipes, Arrived)
        assert wire.dumps((images, labels)) == wire.dumps((own, labels))
        with pytest.raises(TypeError, match="sends no Ahead"):
            wire.dumps(images.lazy.recipes.ahead)


def test_images_that_have_a_file_or_a_step_in_common_send_it_once() -> None:
    def crops() -> Any:
        return T.FiveCrop(20)(PICTURES[0].open()), F.normalize(F.to_tensor(PICTURES[0].open()), [0.5], [0.5])

    with accel.image_backend("cpu", threads=1):
        message = wire.dumps(crops()[0])
        assert len(message) < len(PICTURES[0].data) + 2048
        found, whole = wire.loads(wire.dumps(crops()))
    expected, same = plain(crops)
    helpers.assert_same([F.pil_to_tensor(each) for each in found], [F.pil_to_tensor(each) for each in expected])
    assert torch.equal(whole, same)


@pytest.mark.parametrize("picture", PICTURES, ids=str)
def test_every_kind_of_file(picture: helpers.Named) -> None:
    with accel.image_backend("cpu", threads=1):
        found = wire.loads(wire.dumps(picture.open()))
        assert found.format == "JPEG"
        assert isinstance(found, type(plain(picture.open)))
        values = wire.loads(wire.dumps(decode_jpeg(torch.frombuffer(bytearray(picture.data), dtype=torch.uint8))))
        assert is_lazy(values)
    expected = plain(picture.open)
    assert (found.mode, found.size, found.tobytes()) == (expected.mode, expected.size, expected.tobytes())
    assert torch.equal(values, plain(lambda: decode_jpeg(torch.frombuffer(bytearray(picture.data), dtype=torch.uint8))))


COMPUTED = {"AugMix", "LinearTransformation", "ToPILImage", "Resize", "ScaleJitter"}
BEHIND_KERNELS = {"RandomOrder", "RandomPhotometricDistort"}
"""After which steps on a ``tv_tensors.Image`` are those of pixels that torchvision's functions make first: the tensor
travels as its values, without the memory that it was cut from."""


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", [*OF_BOTH, *OF_V2, *SETTINGS])
def test_every_stock_transform(kind: str, name: str) -> None:
    """What is recorded travels as a recipe, and comes out as torchvision makes it."""
    module, before, last = KINDS[kind]
    if (name in OF_V2 and not kind.startswith("v2")) or (name in SETTINGS and not kind.endswith("pillow")):
        pytest.skip("there is no such transform")
    try:
        transform = module.Compose([*before, made(name, module), *last])
        expected = plain(lambda: samples(transform, 3))
    except (TypeError, AttributeError, RuntimeError, ValueError):
        pytest.skip("it takes no such images")
    with accel.image_backend("cpu", threads=1):
        recorded = samples(transform, 3)
        lazy = [is_lazy(image) for image, _ in recorded]
        smaller = [wire.loads(wire.dumps(each, send="auto")) for each in recorded]
        found = [wire.loads(wire.dumps(each)) for each in recorded]
        values = kind == "v2-uint8" and name in BEHIND_KERNELS
        if name not in COMPUTED and not values:
            assert [is_lazy(image) for image, _ in found] == lazy
    if values:
        assert helpers.known(found) == helpers.known(smaller) == helpers.known(expected)
        return
    helpers.assert_same(found, expected)
    helpers.assert_same(smaller, expected)


def test_the_smaller_of_recipe_and_result_is_sent() -> None:
    """The result's bytes are those of uint8, as the rest of the steps is a table."""
    data = helpers.jpeg(400, 300, quality=95)

    def crop() -> Any:
        return F.normalize(F.to_tensor(F.resize(Image.open(BytesIO(data)), [64, 64])), [0.5], [0.25])

    with accel.image_backend("cpu", threads=1):
        large, small = (len(wire.dumps(crop(), send=send)) for send in ("recipes", "auto"))
        assert 3 * 64 * 64 < small < 3 * 64 * 64 + 1024 < len(data) < large
        found = wire.loads(wire.dumps(crop(), send="auto"))
        assert is_lazy(found)
        with pytest.raises(ValueError, match="send must be"):
            wire.dumps(crop(), send="smaller")  # type: ignore[arg-type]
    assert torch.equal(found, plain(crop))


@pytest.mark.parametrize("name", [name for name, op in OPS.items() if op.samples])
def test_every_op_is_sent_with_the_parameters_that_it_is_tried_with(name: str) -> None:
    op = OPS[name]
    before = [("to_tensor", (torch.float32,))] if isinstance(op, TensorOp) and op.takes == "floats" else []
    before = [("pil_to_tensor", ())] if isinstance(op, TensorOp) and op.takes == "pixels" else before
    refused = []
    for params in op.samples:
        if name in ("scale_nearest", "affine", "perspective"):  # recorded ones are floats
            params = (*params[:2], tuple(map(float, params[2])), *params[3:])
        try:
            steps.after(Picture((3, 64, 48)), [*before, (name, params)])
        except ValueError as error:
            refused.append((params, str(error)))
    assert not refused


@pytest.mark.parametrize("cache", [None, "auto", "50MB"])
def test_what_a_cache_has_is_sent_as_well(cache: str | None, paths: list[str], tmp_path: Path) -> None:
    """Files that were not read, or not decoded, as the cache has results of them."""
    picture = tmp_path / "picture.png"
    helpers.picture(90, 70).save(picture)
    files = [*paths[:3], str(picture)]

    def images() -> list[Any]:
        seed_everything(0)
        return [TRAIN(Image.open(path).convert("RGB")) for path in files]

    expected = plain(images)
    with accel.image_backend("cpu", cache=cache and cache.replace("50", f"{tmp_path}/cache:50"), threads=1):
        for _ in range(3):
            recorded = images()
            for send in ("recipes", "auto"):
                helpers.assert_same([wire.loads(wire.dumps(each, send=send)) for each in recorded], expected)
            _ = torch.stack(recorded).add(0)


def test_other_values() -> None:
    """Labels and whatever else a sample has, as plain arrays."""
    boxes = tv_tensors.BoundingBoxes(torch.eye(4), format="XYXY", canvas_size=(5, 7))  # type: ignore[call-overload]
    sample = {
        "label": 3,
        4: [None, True, -0.5, "näme\ud800", b"bytes", (), [], {}, (1, [2.5, (3,)])],
        "numbers": np.arange(6, dtype=np.int16).reshape(2, 3)[:, ::2],
        "scalar": np.float32(0.25),
        "empty": torch.empty(0, 3),
        "boxes": boxes,
        "mask": tv_tensors.Mask(torch.ones(5, 7, dtype=torch.bool)),
        "float": [float("inf"), -float("inf")],
    }
    found = wire.loads(wire.dumps(sample))
    helpers.assert_same(found, sample)
    assert found["boxes"].canvas_size == (5, 7)
    assert found["boxes"].format == boxes.format
    assert torch.equal(wire.loads(wire.dumps(torch.eye(3)[:, 1:].t())), torch.eye(3)[:, 1:].t())
    assert np.isnan(wire.loads(wire.dumps(float("nan"))))
    for one in (torch.arange(4.0)[::4], torch.ones(1, 6)[:, ::6]):  # of a stride that is not 1
        assert torch.equal(wire.loads(wire.dumps(one)), one)
    for dtype in (torch.bfloat16, torch.float64, torch.complex64, torch.uint16, torch.bool):
        values = torch.tensor([0, 1, 3]).to(dtype)
        again = wire.loads(wire.dumps(values))
        assert again.dtype == dtype
        assert torch.equal(again, values)


@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA", "LA", "CMYK", "YCbCr", "I", "F"])
def test_eager_images_are_sent_as_pixels(mode: str) -> None:
    image = helpers.picture(20, 10, "RGB" if mode not in ("I", "F") else "L").convert(mode)
    found = wire.loads(wire.dumps(image))
    assert (type(found), found.mode, found.size) == (Image.Image, mode, (20, 10))
    assert found.tobytes() == image.tobytes()


def test_pixels_with_steps_are_sent_as_pixels_and_steps() -> None:
    def crop() -> Any:
        return F.resize(helpers.picture(90, 50), [30, 20])

    with accel.image_backend("cpu", threads=1):
        found = wire.loads(wire.dumps(crop()))
        assert found.recipe is not None
    assert found.tobytes() == plain(crop).tobytes()


@pytest.mark.parametrize(
    "value",
    [
        object(),
        OrderedDict(a=1),
        Image.new("P", (3, 3)),
        {1, 2},
        torch.eye(2).to_sparse(),
        torch.nn.Parameter(torch.ones(2)),
        np.ma.masked_array([1, 2], [0, 1]),
        torch.zeros([1] * 17),
    ],
)
def test_other_types_are_refused(value: Any) -> None:
    with pytest.raises(TypeError, match=r"accel\.wire sends no"):
        wire.dumps([value])


@pytest.mark.parametrize(
    "value",
    [Image.new("L", (0, 4)), Image.new("L", (65_501, 1)), dict.fromkeys(range(1001))],
    ids=["0", "wide", "keys"],
)
def test_what_would_be_refused_is_not_sent(value: Any) -> None:
    with pytest.raises(ValueError, match=r"a picture of|keys"):
        wire.dumps([value])


def test_boxes() -> None:
    """Of all formats and modes that torchvision has."""
    for form in tv_tensors.BoundingBoxFormat:
        numbers = {"XYWHR": 5, "CXCYWHR": 5, "XYXYXYXY": 8}.get(form.name, 4)
        of: dict[str, Any] = {"format": form, "canvas_size": (np.int64(9), 7)}
        boxes = tv_tensors.BoundingBoxes(torch.ones(2, numbers), **of)
        for mode in ("soft", "hard", None) if hasattr(boxes, "clamping_mode") else ():
            boxes.clamping_mode = mode
            found = wire.loads(wire.dumps(boxes))
            assert torch.equal(found, boxes)
            assert (found.format, found.canvas_size, found.clamping_mode) == (form, (9, 7), mode)


def test_names_are_sent_on_request_only(tmp_path: Path) -> None:
    path = tmp_path / "a name.jpg"
    path.write_bytes(helpers.undecodable())
    with accel.image_backend("cpu", threads=1):
        image = F.to_tensor(Image.open(path))
        assert b"a name" not in wire.dumps(image)
        message = wire.dumps(image, names=True)
        with pytest.raises(accel.DecodeError, match=r"a name\.jpg"):
            wire.loads(message).add(0)


def test_a_damaged_picture_is_replaced_at_the_receiver() -> None:
    with accel.image_backend("cpu", threads=1):
        message = wire.dumps((F.to_tensor(Image.open(BytesIO(helpers.undecodable()))), 5))
    with accel.image_backend("cpu", on_error="replace", threads=1):
        image, label = wire.loads(message)
        assert not image.any()
    assert label == 5
