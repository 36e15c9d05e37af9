"""Steps of pipelines, with random arguments."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from hypothesis import strategies as st
from PIL import Image, ImageFilter
from torchvision.transforms import InterpolationMode as Mode
from torchvision.transforms import functional as F

from tests.support import helpers

PICTURES = helpers.pictures()
FILTERS = (Mode.NEAREST, Mode.BILINEAR, Mode.BICUBIC, Mode.BOX, Mode.HAMMING, Mode.LANCZOS)
LARGEST = 250


class Step(NamedTuple):
    """A call with its arguments, so that a failing sequence reads well."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]

    def __call__(self, value: Any) -> Any:
        return self.function(value, *self.arguments)

    def __repr__(self) -> str:
        return f"{self.function.__name__}{self.arguments}"


def convert_rgb(image: Image.Image) -> Image.Image:
    return image.convert("RGB")


def copy(image: Image.Image) -> Image.Image:
    return image.copy()


def steps(function: Callable[..., Any], *arguments: st.SearchStrategy[Any]) -> st.SearchStrategy[Step]:
    return st.tuples(*arguments).map(lambda values: Step(function, values))


LENGTH = st.integers(1, 90)
OFFSET = st.integers(-25, 120)
SIDE = st.integers(0, 20)
SIZE = st.tuples(LENGTH, LENGTH).map(list)
PADDING = st.one_of(st.integers(-3, 12), st.tuples(SIDE, SIDE), st.tuples(SIDE, SIDE, SIDE, SIDE))
LEVEL = st.integers(0, 255)
FILL = st.one_of(LEVEL, st.floats(0, 255), st.none())
MODES = st.sampled_from(FILTERS)
PADDING_MODE = st.sampled_from(["constant", "edge", "reflect", "symmetric"])
ON_IMAGES = st.one_of(
    steps(F.crop, OFFSET, OFFSET, LENGTH, LENGTH),
    steps(F.center_crop, SIZE),
    steps(F.resize, SIZE, MODES),
    steps(F.resize, LENGTH, MODES, st.one_of(st.none(), st.integers(91, 120))),
    steps(F.resized_crop, OFFSET, OFFSET, LENGTH, LENGTH, SIZE, MODES),
    steps(F.hflip),
    steps(F.vflip),
    steps(F.pad, PADDING, FILL, PADDING_MODE),
    steps(convert_rgb),
    steps(copy),
)
DTYPE = st.sampled_from([torch.float32, torch.float64, torch.float16, torch.uint8, torch.int16, torch.int32])
NUMBER = st.sampled_from([0.0, 0.5, -1.25, 3.7])
POSITIVE = st.sampled_from([0.25, 0.5, 1.0, 7.5])
ON_TENSORS = st.one_of(
    steps(F.convert_image_dtype, DTYPE),
    steps(F.normalize, st.tuples(NUMBER), st.tuples(POSITIVE)),
    steps(F.normalize, st.tuples(NUMBER, NUMBER, NUMBER), st.tuples(POSITIVE, POSITIVE, POSITIVE)),
    steps(torch.Tensor.to, DTYPE),
    steps(torch.Tensor.half),
    steps(torch.Tensor.bfloat16),
    steps(torch.Tensor.contiguous),
    steps(torch.clone),
)
TO_TENSOR = st.sampled_from([F.to_tensor, F.pil_to_tensor])


def outcome(begin: Callable[[], Any], chain: list[Any], each: Callable[[Any], Any] = lambda value: value) -> Any:
    """The result of a chain on what ``begin`` gives, or the type of its error."""

    def run() -> Any:
        value = begin()
        for step in chain:
            value = step(value)
            if min(value.size if isinstance(value, Image.Image) else value.shape) > LARGEST:
                raise OverflowError
            value = each(value)
        return value

    return helpers.outcome(run)


STEPS = {
    "brightness": lambda image, x: F.adjust_brightness(image, 2 * x),
    "contrast": lambda image, x: F.adjust_contrast(image, 2 * x),
    "saturation": lambda image, x: F.adjust_saturation(image, 2 * x),
    "hue": lambda image, x: F.adjust_hue(image, x - 0.5),
    "gamma": lambda image, x: F.adjust_gamma(image, 0.3 + x),
    "sharpness": lambda image, x: F.adjust_sharpness(image, 3 * x),
    "blur": lambda image, x: F.gaussian_blur(image, [3 + 2 * int(3 * x), 5], 0.1 + 2 * x),
    "box blur": lambda image, x: image.filter(ImageFilter.BoxBlur((9 * x, 2))),
    "Pillow's blur": lambda image, x: image.filter(ImageFilter.GaussianBlur(3 * x)),
    "box": lambda image, x: image.resize((33, 20), 3, (x / 9, 0, image.width - x / 5, image.height)),
    "grey": lambda image, x: F.rgb_to_grayscale(image, 1 if x < 0.5 else 3),
    "rgb": lambda image, x: image.convert("RGB"),
    "invert": lambda image, x: F.invert(image),
    "posterize": lambda image, x: F.posterize(image, 1 + int(7 * x)),
    "solarize": lambda image, x: F.solarize(image, 255 * x),
    "autocontrast": lambda image, x: F.autocontrast(image),
    "equalize": lambda image, x: F.equalize(image),
    "crop": lambda image, x: F.crop(image, int(9 * x) - 3, 5, 30, 25 + int(20 * x)),
    "pad": lambda image, x: F.pad(image, 1 + int(9 * x), int(255 * x)),
    "reflect": lambda image, x: F.pad(image, 1 + int(4 * x), padding_mode="reflect"),
    "flip": lambda image, x: F.hflip(image) if x < 0.5 else F.vflip(image),
    "resize": lambda image, x: F.resize(image, [20 + int(30 * x), 45]),
    "rotate": lambda image, x: F.rotate(image, 360 * x, Mode.BILINEAR, fill=[int(99 * x)]),
    "quarter": lambda image, x: F.rotate(image, 90 * int(4 * x), expand=True),
    "affine": lambda image, x: F.affine(image, 0, [int(20 * x) - 10, 3], 1.0, [0.0, 0.0], fill=[9]),
    "tensor": lambda image, x: F.to_pil_image(F.to_tensor(image)),
}
