"""Classes of ``torchvision.transforms.v2``: ``forward``, and methods that look at types, not at functionals; masks."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable
from functools import partial
from types import FunctionType, NoneType, SimpleNamespace
from typing import Any

import numpy as np
import torch
from PIL import Image
from torchvision import tv_tensors
from torchvision.transforms import InterpolationMode
from torchvision.transforms.v2 import functional as F

from accel.hooks import tv_transforms
from accel.hooks.compiled.single import LAZY
from accel.hooks.compiled.stock import Originals
from accel.hooks.patch import Attribute, Body, Function, Shortcut
from accel.hooks.recording.tensors import linear_transformation
from accel.lazy.from_pixels import functorch
from accel.lazy.image import LazyImage
from accel.lazy.tensor import LazyTensor
from accel.lazy.tensor_base import LazyTensorBase, is_lazy
from accel.ops.memory_layout import PLANAR
from accel.ops.tensors import frozen
from accel.system.private_names import private

_v2 = private("torchvision.transforms.v2._geometry", "query_size", "get_bounding_boxes", "box_iou")
_geometry = private("torchvision.transforms.v2.functional._geometry", "_compute_resized_output_size")


def make_params(original: FunctionType) -> Function:
    """``make_params`` of ``torchvision.transforms.v2.RandomResizedCrop``: (images) -> top, left, height, width."""

    def quick(self: Any, flat_inputs: list[Any]) -> Any:
        size, logs = _size_of_one(flat_inputs), self._log_ratio.tolist()
        top, left, height, width = tv_transforms.resized_crop(size, self.scale, self.ratio, logs)
        return {"top": top, "left": left, "height": height, "width": width}

    if not tv_transforms.checked(original, quick, _some_crop_of_v2):
        return original

    @functools.wraps(original)
    def make_params(self: Any, flat_inputs: list[Any]) -> Any:
        one = len(flat_inputs) == 1 and isinstance(flat_inputs[0], (LazyTensorBase, LazyImage))
        quickly = one and isinstance(self._log_ratio, torch.Tensor) and tv_transforms.usual()
        return (quick if quickly else original)(self, flat_inputs)

    return make_params


def _size_of_one(images: list[Any]) -> tuple[int, int]:
    image = images[0]
    if not isinstance(image, torch.Tensor):
        return image.height, image.width
    lazy = image.__dict__.get("lazy")  # faster than a tensor's ``shape``
    height, width = (image if lazy is None else lazy).shape[-2:]
    return height, width


def _some_crop_of_v2(generator: random.Random) -> tuple[Any, ...]:
    image, scale, ratio = tv_transforms.some_crop(generator)
    return SimpleNamespace(scale=scale, ratio=ratio, _log_ratio=torch.log(torch.tensor(ratio))), [image]


def iou_crop(original: FunctionType) -> Function:
    """``make_params`` of ``torchvision.transforms.v2.RandomIoUCrop``, whose trials take many small tensors each."""

    @np.errstate(all="ignore")
    def quick(self: Any, flat_inputs: list[Any]) -> dict[str, Any]:
        size, boxes = _v2.query_size(flat_inputs), _v2.get_bounding_boxes(flat_inputs)
        pure = F.convert_bounding_box_format(boxes.as_subclass(torch.Tensor), boxes.format, _XYXY)
        corners = pure.numpy()[:, :2], pure.numpy()[:, 2:]
        centres = np.float32(0.5) * (corners[0] + corners[1])
        sides, least = np.array(size[::-1], np.float32), np.float32(self.min_scale)
        span = np.float32(self.max_scale - self.min_scale)
        while True:
            overlap = self.options[int(torch.randint(0, len(self.options), (1,)))]
            if overlap >= 1.0:
                return {}
            for _ in range(self.trials):
                width, height = new = (sides * (least + span * torch.rand(2).numpy())).astype(int).tolist()
                if not self.min_aspect_ratio <= width / height <= self.max_aspect_ratio:
                    continue
                rest = sides - np.array(new, np.float32)
                begin = (rest * torch.rand(2).numpy()).astype(int)
                end = begin + new
                if not (width and height):
                    continue
                within = ((begin < centres) & (centres < end)).all(1)
                first, last = corners[0][within], corners[1][within]
                if len(first) and not largest_overlap(first, last, begin, end) < np.float32(overlap):
                    box = {"top": int(begin[1]), "left": int(begin[0]), "height": height, "width": width}
                    return {**box, "is_within_crop_area": torch.from_numpy(within)}

    own = Originals((_v2, ("query_size", "get_bounding_boxes", "box_iou")), (F, ("convert_bounding_box_format",)))

    @functools.wraps(original)
    def make_params(self: Any, flat_inputs: list[Any]) -> Any:
        boxes: Any = [each for each in flat_inputs if isinstance(each, tv_tensors.BoundingBoxes)]
        known = len(boxes) == 1 and any(isinstance(each, (LazyImage, LazyTensorBase)) for each in flat_inputs)
        if known:
            (own_boxes,) = boxes
            known = type(own_boxes) is tv_tensors.BoundingBoxes and own_boxes.dtype == torch.float32
            known = known and own_boxes.is_cpu and own_boxes.shape[1:] == (4,) and not own_boxes.requires_grad
        numbers = (self.min_scale, self.max_scale, self.min_aspect_ratio, self.max_aspect_ratio, *self.options)
        known = known and {int, float}.issuperset(map(type, numbers))
        known = known and tv_transforms.usual() and own.hold()  # the check takes as long as a third of the switch
        quickly = known and tv_transforms.checked(original, quick, _some_boxes)
        return (quick if quickly else original)(self, flat_inputs)

    return make_params


_XYXY = tv_tensors.BoundingBoxFormat.XYXY


def largest_overlap(first: Any, last: Any, begin: Any, end: Any) -> Any:
    """The largest intersection over union of boxes, float32 [boxes, 2] corners, and one more box, in torch's order."""
    sides, side = last - first, (end - begin).astype(np.float32)
    shared = np.maximum(np.minimum(last, end.astype(np.float32)) - np.maximum(first, begin.astype(np.float32)), 0)
    inner = shared[:, 0] * shared[:, 1]
    return (inner / (sides[:, 0] * sides[:, 1] + side[0] * side[1] - inner)).max()


def _some_boxes(generator: random.Random) -> tuple[Any, ...]:
    size = generator.randint(20, 600), generator.randint(20, 600)
    boxes = [[generator.uniform(0, 0.9 * side) for side in size] for _ in range(generator.randint(1, 9))]
    boxes = [[x, y, *[generator.uniform(1, side) for side in size]] for x, y in boxes]
    scales = {"min_scale": 0.3, "max_scale": 1.0, "min_aspect_ratio": 0.5, "max_aspect_ratio": 2.0, "trials": 5}
    transform = SimpleNamespace(**scales, options=[0.0, 0.3, 0.7, 1.0])
    return transform, [tv_tensors.BoundingBoxes(boxes, format="XYWH", canvas_size=size, dtype=torch.float32)]


def get_fill(original: Function, fill_dict: Any, inpt_type: Any) -> Any:
    """``torchvision.transforms.v2._utils._get_fill``, which looks up exact types: with the type behind a lazy one."""
    return original(fill_dict, inpt_type.becomes if issubclass(inpt_type, (LazyImage, LazyTensorBase)) else inpt_type)


def to_dtype(original: Function) -> Function:
    """``torchvision.transforms.v2.ToDtype.transform``, which looks up exact types if it has several dtypes."""

    @functools.wraps(original)
    def transform(self: Any, inpt: Any, params: Any) -> Any:
        if isinstance(self.dtype, dict) and is_lazy(inpt):
            dtype = self.dtype.get(inpt.becomes, self.dtype.get("others"))
            if isinstance(dtype, torch.dtype):
                return F.to_dtype(inpt, dtype, self.scale)
            original(self, inpt.becomes(torch.empty(1, 1, 1, device="cpu")), params)  # which may warn, or raise
            return inpt
        return original(self, inpt, params)

    return transform


def to_pure_tensor(original: Function, self: Any, inpt: Any, params: Any) -> Any:
    """``torchvision.transforms.v2.ToPureTensor.transform``."""
    return inpt.as_lazy(LazyTensor) if is_lazy(inpt) else original(self, inpt, params)


def mixed(name: str, param: str, original: Function, self: Any, inpt: Any, params: dict[str, Any]) -> Any:
    """``MixUp.transform`` and ``CutMix.transform``, recorded on a lazy batch as a step on the whole batch."""
    if not is_lazy(inpt) or not isinstance(inpt, LazyTensorBase) or len(inpt.lazy.lead) != 1:
        return original(self, inpt, params)
    if name == "mixup" and not inpt.lazy.dtype.is_floating_point:
        return original(self, inpt, params)
    self._check_image_or_video(inpt, batch_size=params["batch_size"])
    turned = name == "mixup" and inpt.lazy.layout.transposed  # torch's roll then makes it planar
    return inpt.then((name, (frozen(params[param]),)), layout=PLANAR if turned else None, on_batch=True)


# -- masks, whose pixels torch moves one by one ---------------------------------------------------------------


def resize_mask(original: FunctionType) -> Function:
    """``resize_mask``: (masks [..., height, width], size) -> the nearest pixels; bytes are gathered, axis by axis."""

    def quick(mask: Any, size: Any, *, interpolation: Any = None, max_size: Any = None) -> Any:
        old = tuple(mask.shape[-2:])
        new = tuple(_geometry._compute_resized_output_size(old, size=size, max_size=max_size))
        if new == old or {*map(type, new)} != {int} or min(new) < 1:
            return original(mask, size, max_size=max_size)  # which returns the mask itself, or raises
        gathers = [(nearest(old[axis], new[axis]), axis) for axis in (-2, -1)]
        if new[0] > old[0]:  # whole rows are copied at once, so the pixels of fewer rows are gathered
            gathers.reverse()
        return torch.from_numpy(mask.numpy().take(*gathers[0]).take(*gathers[1]))

    if not tv_transforms.checked(original, quick, _some_masks):
        return original
    own = Originals((_geometry, ("_compute_resized_output_size", "resize_image", "interpolate")))

    @functools.wraps(original)
    def instead(*args: Any, **kwargs: Any) -> Any:
        known = not torch.compiler.is_compiling() and len(args) == 2 and kwargs.keys() <= {"interpolation", "max_size"}
        known = known and kwargs.get("interpolation", "nearest") in _TO_NEAREST and _of_bytes(args[0]) and own.hold()
        return (quick if known else original)(*args, **kwargs)

    return instead


_TO_NEAREST = [each for mode in InterpolationMode for each in (mode, mode.value) if mode.value != "nearest-exact"]


def _of_bytes(mask: Any) -> bool:
    of_bytes = type(mask) is torch.Tensor and mask.is_cpu and mask.dtype in (torch.uint8, torch.bool) and mask.ndim > 1
    traced = of_bytes and (functorch.is_functorch_wrapped_tensor(mask) or torch._C._get_tracing_state())
    return of_bytes and not traced and mask.is_contiguous() and mask.numel() > 0 and tv_transforms.usual()


def nearest(old: int, new: int) -> Any:
    """The pixels of a side that torch's mode "nearest" takes: int64 [new], rounded as in its float32 arithmetic."""
    places = np.arange(new, dtype=np.float32) * (np.float32(old) / np.float32(new))
    return np.minimum(places.astype(np.int64), old - 1)


def _some_masks(generator: random.Random) -> tuple[Any, ...]:
    shape = *generator.choice(((), (1,), (3,))), generator.randint(60, 500), generator.randint(2, 9)
    masks = torch.from_numpy(np.random.default_rng(generator.getrandbits(32)).integers(0, 256, shape, np.uint8))
    return generator.choice((masks, masks > 99)), [generator.randint(1, 1000), generator.randint(10, 15)]


def sanitized(original: Function, self: Any, inpt: Any, params: Any) -> Any:
    """``SanitizeBoundingBoxes.transform``, which copies the masks of the boxes that stay whole."""
    if type(inpt) is tv_tensors.Mask and inpt.is_cpu:
        valid, strides = params["valid"], [*inpt.stride()]
        known = type(valid) is torch.Tensor and valid.dtype == torch.bool and valid.shape == inpt.shape[:-2]
        if known and sorted({*strides}) == strides[::-1] and not any(inpt is each for each in params["labels"] or ()):
            kept = inpt.as_subclass(torch.Tensor).index_select(0, valid.nonzero()[:, 0])
            return tv_tensors.wrap(kept, like=inpt)
    return original(self, inpt, params)


# -- ``forward`` without torch's pytree ----------------------------------------------------------------------
#
# torchvision's ``forward`` flattens samples of any structure and rebuilds them. For a lazy image, alone or with plain
# leaves in a tuple, its work is written out here, and compared with the original before it is used.

_LEAVES = {*LAZY, torch.Tensor, int, float, bool, str, NoneType}
"""Types that are leaves to torch's pytree."""


def needs(original: FunctionType) -> Callable[..., list[bool]]:
    """``Transform._needs_transform_list``: (leaves) -> whether each must be transformed."""
    if not tv_transforms.checked(original, _needs_of_image, _some_image):
        return original

    @functools.wraps(original)
    def needs_transform_list(self: Any, flat_inputs: list[Any]) -> list[bool]:
        return (_needs_of_image if len(flat_inputs) == 1 else original)(self, flat_inputs)

    return needs_transform_list


def _needs_of_image(self: Any, leaves: list[Any]) -> list[bool]:
    (image,) = leaves
    for each in self._transformed_types:
        if isinstance(image, each) if isinstance(each, type) else each(image):
            return [True]
    return [False]


def _of_leaves(self: Any, leaves: list[Any], by_chance: bool) -> list[Any]:
    """The leaves of a sample after a transform; the list itself if it was not applied."""
    self.check_inputs(leaves)
    if by_chance and not tv_transforms.happens(self.p):
        return leaves
    needs = self._needs_transform_list(leaves)
    if needs == [True]:
        return [self.transform(leaves[0], self.make_params(leaves))]
    params = self.make_params([leaf for leaf, needed in zip(leaves, needs, strict=False) if needed])
    return [self.transform(leaf, params) if needed else leaf for leaf, needed in zip(leaves, needs, strict=False)]


def _of_inputs(self: Any, inputs: tuple[Any, ...], by_chance: bool) -> Any:
    """The sample after a transform: one image, or a tuple of leaves, given as one input or as several."""
    sample = inputs if len(inputs) > 1 else inputs[0]
    if type(sample) is not tuple:
        return _of_leaves(self, [sample], by_chance)[0]
    made = _of_leaves(self, leaves := list(sample), by_chance)
    return sample if made is leaves else tuple(made)


def forward(original: FunctionType, by_chance: bool) -> Function:
    """``forward``: (*inputs) -> the sample. ``by_chance``: of transforms that are applied with a probability."""

    def quick(self: Any, *inputs: Any) -> Any:
        return _of_inputs(self, inputs, by_chance)

    if not tv_transforms.checked(original, quick, _some_sample):
        return original

    @functools.wraps(original)
    def instead(self: Any, *inputs: Any) -> Any:
        known = (len(inputs) == 1 and type(inputs[0]) in LAZY) or _are_leaves(inputs)
        if known and (not by_chance or (type(self.p) is float and tv_transforms.usual())):
            return _of_inputs(self, inputs, by_chance)
        return original(self, *inputs)

    return instead


def _are_leaves(inputs: Any) -> bool:
    """Whether the inputs are a lazy image and plain leaves, or a tuple of these."""
    if len(inputs) == 1 and type(inputs[0]) is tuple:
        inputs = inputs[0]
    return len(inputs) > 1 and type(inputs[0]) in LAZY and all(type(leaf) in _LEAVES for leaf in inputs)


def _some_image(generator: random.Random) -> tuple[Any, ...]:
    kinds = (torch.Tensor, tv_tensors.TVTensor, tv_tensors.Image, Image.Image, int, F.is_pure_tensor)
    tensor = torch.zeros(3, 2, 2)
    image = generator.choice((tensor, tv_tensors.Image(tensor), tv_tensors.Mask(tensor), Image.new("L", (2, 2)), 3))
    return SimpleNamespace(_transformed_types=generator.sample(kinds, generator.randint(0, 2))), [image]


def _some_sample(generator: random.Random) -> tuple[Any, ...]:
    """A stand-in for a transform, whose result lists all calls that it got, and a sample in one of the known forms.

    Each call draws a number, so that also calls after the last ``transform`` show, in the generator's state.
    """
    image, label = Image.new("L", (generator.randint(1, 9), 2)), generator.randint(0, 9)
    calls: list[Any] = []

    def answer(question: str, leaves: Any, answer: Any) -> Any:
        if question == "check":
            calls.clear()
        calls.append((question, leaves, torch.rand(1).item()))
        return answer

    transform = SimpleNamespace(
        p=generator.choice((0.0, 0.1, 0.5, 1.0, generator.random())),
        check_inputs=lambda leaves: answer("check", list(leaves), None),
        make_params=lambda leaves: answer("params", list(leaves), {"seed": 1}),
        transform=lambda leaf, params: answer("transform", (leaf, params), [*calls]),
        _needs_transform_list=lambda leaves: answer("needs", list(leaves), [type(leaf) is not int for leaf in leaves]),
    )
    return transform, *generator.choice(((image,), (image, label), ((image, label),), (label,)))


PATCHES = (
    Attribute("torchvision.transforms.v2.RandomResizedCrop.make_params", make_params),
    Attribute("torchvision.transforms.v2.RandomIoUCrop.make_params", iou_crop),
    Shortcut("torchvision.transforms.v2.functional._geometry.resize_mask", resize_mask),
    Body("torchvision.transforms.v2.SanitizeBoundingBoxes.transform", sanitized),
    Body("torchvision.transforms.v2._utils._get_fill", get_fill),
    Attribute("torchvision.transforms.v2.ToDtype.transform", to_dtype),
    Body("torchvision.transforms.v2.ToPureTensor.transform", to_pure_tensor),
    Body("torchvision.transforms.v2.LinearTransformation.transform", linear_transformation),
    Body("torchvision.transforms.v2.MixUp.transform", partial(mixed, "mixup", "lam")),
    Body("torchvision.transforms.v2.CutMix.transform", partial(mixed, "cutmix", "box")),
    Attribute("torchvision.transforms.v2.Transform.forward", partial(forward, by_chance=False)),
    Attribute("torchvision.transforms.v2.Transform._needs_transform_list", needs),
    Attribute("torchvision.transforms.v2._transform._RandomApplyTransform.forward", partial(forward, by_chance=True)),
)
