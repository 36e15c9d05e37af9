"""Pixel sources: eager Pillow images become lazy at the first step that is recorded on them."""

import copy
import pickle
from collections.abc import Callable
from functools import cache
from io import BytesIO
from multiprocessing.reduction import ForkingPickler
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image, ImageDraw
from torch.utils.data import DataLoader
from torchvision import transforms as v1
from torchvision.transforms import functional as F
from torchvision.transforms import v2

import accel
from accel.lazy.from_pixels import lazy_image
from tests.support import helpers, steps
from tests.support.helpers import MEAN, STD, assert_equal_runs, assert_same, is_lazy, outcome, picture
from tests.support.steps import ON_IMAGES, ON_TENSORS, TO_TENSOR, Step


@cache
def encoded(kind: str, mode: str = "RGB", **options: Any) -> bytes:
    stream = BytesIO()
    picture(83, 61, mode).save(stream, kind, **options)
    return stream.getvalue()


EAGER: dict[str, Callable[[], Image.Image]] = {
    "array": lambda: picture(83, 61),
    "grey-array": lambda: Image.fromarray(np.asarray(picture(32, 29, "L"))),
    "png": lambda: Image.open(BytesIO(encoded("PNG"))),
    "png-grey": lambda: Image.open(BytesIO(encoded("PNG", "L"))),
    "png-loaded": lambda: loaded(Image.open(BytesIO(encoded("PNG")))),
    "palette-to-rgb": lambda: Image.open(BytesIO(encoded("PNG", "P"))).convert("RGB"),
    "alpha-to-rgb": lambda: Image.open(BytesIO(encoded("PNG", "RGBA"))).convert("RGB"),
    "webp": lambda: Image.open(BytesIO(encoded("WEBP"))),
    "bmp": lambda: Image.open(BytesIO(encoded("BMP"))),
    "tiff": lambda: Image.open(BytesIO(encoded("TIFF"))),
    "gif": lambda: Image.open(BytesIO(encoded("GIF"))).convert("RGB"),
    "cmyk-jpeg": lambda: Image.open(BytesIO(encoded("JPEG", "CMYK"))).convert("RGB"),
    "touched-jpeg": lambda: touched(Image.open(BytesIO(encoded("JPEG")))),
}


def loaded(image: Image.Image) -> Image.Image:
    image.load()
    return image


def touched(image: Image.Image) -> Image.Image:
    image.putpixel((3, 5), (1, 2, 3))
    return image


FIRST_STEPS: dict[str, Callable[[Image.Image], Any]] = {
    "hflip": F.hflip,
    "vflip": F.vflip,
    "crop": lambda image: F.crop(image, 3, 4, 20, 25),
    "crop-outside": lambda image: F.crop(image, -3, 14, 70, 85),
    "center_crop": lambda image: F.center_crop(image, [17, 99]),
    "five_crop": lambda image: F.five_crop(image, [9, 7]),
    "resize": lambda image: F.resize(image, [40, 31]),
    "resize-nearest": lambda image: F.resize(image, [40, 31], v1.InterpolationMode.NEAREST),
    "resized_crop": lambda image: F.resized_crop(image, 3, 5, 20, 19, [33, 31]),
    "pad": lambda image: F.pad(image, [3, 4], 7),
    "pad-reflect": lambda image: F.pad(image, [3, 4], padding_mode="reflect"),
    "to_tensor": F.to_tensor,
    "pil_to_tensor": F.pil_to_tensor,
    "v2-hflip": v2.functional.horizontal_flip,
    "v2-vflip": v2.functional.vertical_flip,
    "v2-crop": lambda image: v2.functional.crop(image, 3, 4, 20, 25),
    "v2-center_crop": lambda image: v2.functional.center_crop(image, [17, 99]),
    "v2-ten_crop": lambda image: v2.functional.ten_crop(image, [9, 7]),
    "v2-resize": lambda image: v2.functional.resize(image, [40, 31]),
    "v2-resized_crop": lambda image: v2.functional.resized_crop(image, 3, 5, 20, 19, [33, 31]),
    "v2-pad": lambda image: v2.functional.pad(image, [3, 4], fill=7),
    "v2-to_image": v2.functional.to_image,
    "v2-pil_to_tensor": v2.functional.pil_to_tensor,
}


def parts(value: Any) -> list[Any]:
    return list(value) if isinstance(value, tuple) else [value]


@pytest.mark.parametrize("eager", EAGER.values(), ids=EAGER)
def test_the_first_recorded_step_makes_it_lazy(eager: Callable[[], Any]) -> None:
    expected = [first(eager()) for first in FIRST_STEPS.values()]
    found = []
    with accel.image_backend("cpu"):
        for name, first in FIRST_STEPS.items():
            image = eager()
            found.append(first(image))
            assert lazy_image(image) is not image, name
            assert all(accel.explain(part).startswith("lazy") for part in parts(found[-1])), name
    for made, plain in zip(found, expected, strict=True):
        for part, wanted in zip(parts(made), parts(plain), strict=True):
            assert getattr(part, "info", None) == getattr(wanted, "info", None)
            assert_same(part, wanted)


ELSE = ["1", "P", "RGBA", "LA", "CMYK", "YCbCr", "I", "F", "I;16"]


@pytest.mark.parametrize("mode", ELSE)
def test_other_modes_stay_pillows(mode: str) -> None:
    image = picture(40, 37, "I" if mode == "I;16" else mode).convert(mode)

    def results() -> dict[str, Any]:
        made = {name: parts(outcome(first, image)) for name, first in FIRST_STEPS.items()}
        return {name: [(type(part), part) for part in each] for name, each in made.items()}

    assert_equal_runs(results)


def test_pillows_own_methods_on_eager_images_stay_pillows() -> None:
    image = picture(30, 20)
    with accel.image_backend("cpu"):
        for derived in (image.crop((1, 2, 9, 9)), image.resize((5, 6)), image.copy(), image.convert("L")):
            assert type(derived) is Image.Image


class Mine(Image.Image):
    """A user's own class, which may do something else in any of its methods."""

    def transpose(self, method: Any) -> Any:
        return self.copy()


def test_a_users_own_class_is_left_alone() -> None:
    mine = Mine()
    mine.__setstate__(picture(30, 20).__getstate__())
    with accel.image_backend("cpu"):
        assert lazy_image(mine) is None
        assert F.hflip(mine).tobytes() == mine.tobytes()


def test_nothing_begins_where_accel_steps_aside() -> None:
    image = picture(30, 20)
    with accel.image_backend("cpu"), accel.image_backend("torchvision"):
        assert lazy_image(image) is None
        assert type(F.hflip(image)) is Image.Image
        assert type(F.to_tensor(image)) is torch.Tensor


def test_a_resize_that_does_nothing_gives_the_same_object() -> None:
    image = picture(30, 20)
    with accel.image_backend("cpu"):
        assert F.resize(image, [20, 30]) is image
        assert v2.functional.resize(image, [20, 30]) is image


def test_the_backend_is_the_one_in_force_at_the_first_step() -> None:
    image = picture(30, 20)
    with accel.image_backend("cpu", threads=1):
        one = F.hflip(image)
    with accel.image_backend("cpu", threads=2):
        two = F.hflip(F.vflip(one))
        other = F.hflip(image)
    assert "threads=1" in accel.explain(two)
    assert "threads=2" in accel.explain(other)


# -- whoever has the image may go on painting on it ---------------------------------------------------------


def by_draw(image: Image.Image) -> Callable[[], None]:
    draw = ImageDraw.Draw(image)
    return lambda: draw.rectangle((0, 0, *image.size), "red")


def by_access(image: Image.Image) -> Callable[[], None]:
    access: Any = image.load()

    def change() -> None:
        for x in range(image.width):
            access[x, x % image.height] = (250, 1, 99)

    return change


CHANGES: dict[str, Callable[[Image.Image], Callable[[], None]]] = {
    "paste": lambda image: lambda: image.paste((1, 2, 3), (0, 0, 40, 40)),
    "putpixel": lambda image: lambda: [image.putpixel((x, x), (9, 9, 9)) for x in range(40)] and None,
    "putdata": lambda image: lambda: image.putdata([(5, 6, 7)] * 83 * 61),
    "draw": by_draw,
    "access": by_access,
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_change_after_recording_is_not_seen(change: Callable[[Image.Image], Callable[[], None]]) -> None:
    def run(first: Callable[[Any], Any]) -> Any:
        image = picture(83, 61)
        do = change(image)
        before = first(image)
        do()
        return parts(before), parts(first(image))

    for before, after in assert_equal_runs(lambda: [run(first) for first in FIRST_STEPS.values()]):
        assert any(one.tobytes() != other.tobytes() if isinstance(one, Image.Image) else not one.equal(other)
                   for one, other in zip(before, after, strict=True))  # fmt: skip


def test_a_change_of_the_array_behind_is_not_seen() -> None:
    """Pillow's grey images share the memory of the array they are made from."""

    def run(first: Callable[[Any], Any]) -> Any:
        array = np.asarray(picture(83, 61, "L")).copy()
        result = first(Image.fromarray(array))
        array[:] = 0
        return result

    assert_equal_runs(lambda: {name: run(first) for name, first in FIRST_STEPS.items()})


def test_a_lazy_image_that_was_painted_on_goes_on_lazy_with_what_it_shows_now() -> None:
    def run() -> Any:
        image = Image.open(BytesIO(helpers.jpeg(60, 50)))
        first = F.hflip(image)
        image.paste((7, 8, 9), (0, 0, 30, 30))
        return first, F.to_tensor(F.resize(F.hflip(image), [20, 20]))

    assert_equal_runs(run, lazy=True)


# -- any sequence of steps, batches, other processes --------------------------------------------------------


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
@given(
    eager=st.sampled_from(list(EAGER)),
    images=st.lists(ON_IMAGES, max_size=6),
    to_tensor=TO_TENSOR,
    tensors=st.lists(ON_TENSORS, max_size=4),
)
def test_any_sequence_fused_equals_torchvision(
    eager: str, images: list[Step], to_tensor: Callable[[Any], Any], tensors: list[Step]
) -> None:
    assert_equal_runs(lambda: steps.outcome(EAGER[eager], [*images, to_tensor, *tensors]))


@pytest.mark.parametrize("workers", [0, 2])
def test_loaders_of_files_and_pixels(workers: int) -> None:
    """Files and pixels, grey and colour, in turns."""
    transform = v1.Compose(
        [v1.RandomCrop(32, padding=4), v1.RandomHorizontalFlip(), v1.ToTensor(), v1.Normalize(MEAN, STD)]
    )

    def sample(index: int) -> Any:
        if index % 3 == 0:
            image = Image.open(BytesIO(helpers.jpeg(40, 50, seed=index)))
        else:
            image = picture(32, 32, "L" if index % 3 == 1 else "RGB", index)
        return transform(image.convert("RGB")), index

    def epoch() -> Any:
        loader = DataLoader(helpers.Each(range(12), sample), 5, num_workers=workers)
        return [(images.to("cpu"), labels) for images, labels in helpers.batches(loader)]

    assert_equal_runs(epoch)


def test_pixels_cross_process_borders() -> None:
    with accel.image_backend("cpu"):
        image = F.hflip(picture(41, 33))
        tensors = torch.stack([F.to_tensor(image), F.to_tensor(F.vflip(image))])
        copies = [pickle.loads(ForkingPickler.dumps(image)), copy.deepcopy(image)]
        assert all(map(is_lazy, [*copies, tensors]))
        received = pickle.loads(ForkingPickler.dumps(tensors))
        assert is_lazy(received)
    expected = F.hflip(picture(41, 33))
    for other in copies:
        assert_same(other, expected)
    assert_same(received, torch.stack([F.to_tensor(expected), F.to_tensor(F.vflip(expected))]))


def test_explanation_says_where_the_pixels_are_from() -> None:
    with accel.image_backend("cpu"):
        text = accel.explain(F.to_tensor(F.center_crop(EAGER["array"](), [20, 20])))
        assert "1 image from 1 pixel source" in text
        assert "<image in memory: pixels 20x20 RGB>, 1200 bytes" in text
        assert "decoder: none needed" in text


def test_broken_files_raise_what_pillow_raises() -> None:
    data = encoded("PNG")[:900]

    def attempts() -> Any:
        return [outcome(lambda: first(Image.open(BytesIO(data)))) for first in FIRST_STEPS.values()]  # noqa: B023

    assert set(assert_equal_runs(attempts)) == {OSError}
