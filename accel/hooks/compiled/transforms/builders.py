"""Builders: functions that make the parts of a program of a transform, and the resulting kind of image."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torchvision import transforms as v1
from torchvision.transforms import v2

from accel.hooks.compiled.random_numbers.tape import Bounds, Tape
from accel.hooks.compiled.stock import Refused
from accel.hooks.compiled.transforms import draws, padding, policies, random_apply, traced
from accel.hooks.compiled.transforms.draws import Instruction, Run, Size
from accel.hooks.compiled.transforms.fixed import Fixed, ImageKind, moved
from accel.hooks.compiled.transforms.traced import TracedTransform
from accel.ops import OPS
from accel.ops.row import KernelOp
from accel.recipes.rows import Form, Slot
from accel.system.private_names import private

F1 = private("torchvision.transforms.functional", "_get_perspective_coeffs")

Built = tuple[list[Instruction], ImageKind]
"""The parts of a program, and the kind of image that they make."""
Builder = Callable[[Any, ImageKind], Built]


def resized_crop(transform: Any, kind: ImageKind) -> Built:
    if transform.antialias is not True or len(transform.size) != 2:
        raise Refused("RandomResizedCrop has unusual parameters")
    size = tuple(transform.size)
    parts = size, tuple(transform.scale), tuple(transform.ratio), _logs(transform)
    if kind.erased:
        place = draws.ResizedCrop(*parts, Form(""), of_tensor=True).place
        return _traced(draws.ResizedCrop.most, place, partial(_cropped_and_resized, transform), kind)
    tried = Fixed([lambda image: _cropped_and_resized(transform, image, (1, 2, size[0] + 2, size[1] + 3))], kind)
    steps = tried.found((), (size[0] + 5, size[1] + 7))[0].forms
    if [form.name for form in steps[:-1]] != ["crop"] or kind.dtype != torch.uint8:
        raise Refused("RandomResizedCrop is not recorded as usual")
    (name, params, _), kernel = steps[-1], isinstance(OPS[steps[-1].name], KernelOp)
    resize = Form(name, params if kernel else (*size, *params[2:]))
    op = draws.ResizedCrop(*parts, resize, kind.cls is not None)
    return [op], moved(kind)._replace(erased=kernel or kind.erased)


def _logs(transform: Any) -> Bounds:
    """The bounds of the logarithm of a transform's ``ratio``."""
    own = getattr(transform, "_log_ratio", None)
    return draws.log_bounds(tuple(transform.ratio)) if own is None else tuple(own.tolist())


def _cropped_and_resized(transform: Any, image: Any, box: tuple[int, int, int, int]) -> Any:
    top, left, height, width = box
    if isinstance(transform, v2.Transform):
        return transform.transform(image, {"top": top, "left": left, "height": height, "width": width})
    return v1.functional.resized_crop(
        image, *box, transform.size, transform.interpolation, antialias=transform.antialias
    )


def crop(transform: Any, kind: ImageKind) -> Built:
    ops: list[Instruction] = []
    is_v2 = isinstance(transform, v2.Transform)
    if transform.padding is not None or transform.pad_if_needed:
        begin = moved(kind) if transform.pad_if_needed else kind
        pad = padding.of_crop(transform)
        ops.append(_each_time([pad], begin) if kind.erased else Fixed([pad], begin))
    size = tuple(transform.size)
    op = draws.Crop(size, both=not is_v2)
    if not kind.erased:
        return [*ops, op], moved(kind)

    def apply(image: Any, box: tuple[int, int, int, int]) -> Any:
        return image if is_v2 and tuple(image.shape[-2:]) == size else _functional(transform).crop(image, *box)

    made, kind = _traced(op.most, op.place, apply, kind, size)
    return [*ops, *made], kind


def flip(step: str) -> Builder:
    def make(transform: Any, kind: ImageKind) -> Built:
        if not kind.erased:
            return [draws.Flip(transform.p, step)], kind
        flipped = _each_time([getattr(_functional(transform), step)], kind)
        return [random_apply.RandomApply(transform.p, [flipped])], moved(kind)

    return make


def fixed(transforms: Sequence[Any], kind: ImageKind) -> tuple[Instruction, ImageKind]:
    """The part for transforms that draw nothing, and the resulting kind."""
    op = Fixed(transforms, kind)
    try:
        return op, op.tried(_SIZE)
    except Refused:
        if not kind.erased:
            raise
    return _each_time(transforms, kind), moved(kind)


_SIZE = 256, 320


def _each_time(transforms: Sequence[Any], kind: ImageKind) -> Instruction:
    """The part for transforms that draw nothing and move pixels of tensors with random changes (``ImageKind.erased``).

    Whether they may be moved ahead of these changes is decided anew for each image.
    """

    def apply(image: Any, drawn: Any) -> Any:
        for transform in transforms:
            image = transform(image)
        return image

    (op,), _ = _traced(0, lambda tape, height, width: None, apply, kind, _SIZE)
    return op


def erasing(transform: Any, kind: ImageKind) -> Built:
    value = transform.value
    values = (value,) if type(value) in (int, float) else value
    usual = type(values) in (list, tuple) and len(values) in (1, kind.channels)
    if kind.cls is None or not usual or transform.inplace:
        raise Refused("RandomErasing has unusual parameters")
    op = draws.Erasing(transform.p, tuple(transform.scale), _logs(transform), tuple(map(float, values)))
    return [op], kind._replace(erased=True)


def _functional(transform: Any) -> Any:
    return v2.functional if isinstance(transform, v2.Transform) else v1.functional


def grey(transform: Any, kind: ImageKind) -> Built:
    grey = Fixed([partial(_functional(transform).rgb_to_grayscale, num_output_channels=kind.channels)], kind)
    return [random_apply.RandomApply(transform.p, [grey])], kind


def with_probability(name: str, *params: str) -> Builder:
    """A builder for a function that is applied with probability ``p``, with these attributes of the transform."""

    def make(transform: Any, kind: ImageKind) -> Built:
        done = partial(getattr(_functional(transform), name), **{param: getattr(transform, param) for param in params})
        fixed = Fixed([done], kind)
        fixed.tried((40, 50))
        in_float64 = not isinstance(transform, v2.Transform)
        return [random_apply.RandomApply(transform.p, [fixed], in_float64=in_float64)], kind

    return make


def _with_factor(done: Callable[..., Any], kind: ImageKind, size: Size = (40, 50)) -> Form:
    """The form of the step that ``done(factor, image)`` records, with slot 0 wherever the factor is a parameter.

    A form without a name if it records no step, as some functions do on grey images.
    """
    found = Fixed([partial(done, _FACTOR)], kind).found((), size)[0].forms
    if not found:
        return Form("")
    if len(found) != 1 or _FACTOR not in found[0].params or found[0].drawn >= 0:
        raise Refused("a factor is not recorded as usual")
    (step,) = found
    return Form(step.name, tuple(Slot(0, real=True) if each == _FACTOR else each for each in step.params))


_FACTOR = 0.34375


def _colour(transform: Any, name: str, kind: ImageKind) -> Form:
    adjust = getattr(_functional(transform), f"adjust_{name}")
    return _with_factor(lambda factor, image: adjust(image, **{f"{name}_factor": factor}), kind)


def jitter(transform: Any, kind: ImageKind) -> Built:
    bounds = [getattr(transform, name) for name in JITTERS]
    forms = [
        Form("") if each is None else _colour(transform, name, kind) for name, each in zip(JITTERS, bounds, strict=True)
    ]
    return [random_apply.Jitter([each and tuple(each) for each in bounds], forms)], kind


def distort(transform: Any, kind: ImageKind) -> Built:
    forms = [_colour(transform, name, kind) for name in JITTERS]
    (permute,), kind = channels(transform, kind)
    bounds = [tuple(getattr(transform, name)) for name in JITTERS]
    return [random_apply.Distort(transform.p, bounds, forms, permute)], kind


JITTERS = ("brightness", "contrast", "saturation", "hue")


def channels(transform: Any, kind: ImageKind) -> Built:
    permutation = random_apply.permutation(kind.channels)

    def draw(tape: Tape, height: int, width: int) -> Sequence[int]:
        return permutation.choose(tape)

    return _traced(permutation.most, draw, lambda image, order: v2.functional.permute_channels(image, order), kind)


def choice(transform: Any, kind: ImageKind) -> Built:
    return [policies.RandAugment(transform, kind)], kind


def policy(transform: Any, kind: ImageKind) -> Built:
    pairs = transform._policies if isinstance(transform, v2.Transform) else transform.policies
    return [policies.AutoAugment(transform, pairs, kind)], kind


def blur(transform: Any, kind: ImageKind) -> Built:
    blurred, size = _functional(transform).gaussian_blur, list(transform.kernel_size)
    if kind.cls is not None:
        return _traced(
            1, traced.between(transform.sigma), lambda image, sigma: blurred(image, size, [sigma, sigma]), kind
        )

    def form(height: int, width: int) -> Form:
        return _with_factor(lambda sigma, image: blurred(image, size, [sigma, sigma]), kind, (height, width))

    form(*[max(100, 2 * side) for side in size])
    return [draws.Factor(tuple(transform.sigma), form)], kind


# -- transforms that are run to record their steps (``TracedTransform``) ----------------------------------------


def _tracing(
    most: int,
    draws: Callable[[Any], traced.Draws],
    params: Callable[[Any], dict[str, Any]],
    v1_call: Callable[[Any, Any, Any, Any], Any] | None = None,
) -> Builder:
    """A builder for a transform that is run to record its steps; with probability ``p``, if it has one.

    Args:
        most: the most draws for an image. draws: makes the function that draws for a transform.
        params: the params of v2's ``transform`` for what was drawn.
        v1_call: what v1 does, for (transform, image, what was drawn, fill); None: v1 has no such transform.
    """

    def make(transform: Any, kind: ImageKind) -> Built:
        def apply(image: Any, drawn: Any) -> Any:
            if v1_call is None or isinstance(transform, v2.Transform):
                return transform.transform(image, params(drawn))
            return v1_call(transform, image, drawn, policies.filled(transform.fill, kind))

        ops, after = _traced(most, draws(transform), apply, kind)
        return [random_apply.RandomApply(transform.p, ops)] if hasattr(transform, "p") else ops, after

    return make


rotation = _tracing(
    1,
    lambda own: traced.between(own.degrees),
    lambda angle: {"angle": angle},
    lambda transform, image, angle, fill: v1.functional.rotate(
        image, angle, transform.interpolation, transform.expand, transform.center, fill
    ),
)
affine = _tracing(
    6,
    lambda own: traced.affine(own.degrees, own.translate, own.scale, own.shear),
    lambda drawn: dict(zip(("angle", "translate", "scale", "shear"), drawn, strict=True)),
    lambda transform, image, drawn, fill: v1.functional.affine(
        image, *drawn, transform.interpolation, fill, transform.center
    ),
)
perspective = _tracing(
    8,
    lambda own: traced.corners(own.distortion_scale),
    lambda points: {"coefficients": F1._get_perspective_coeffs(*points)},
    lambda transform, image, points, fill: v1.functional.perspective(image, *points, transform.interpolation, fill),
)
zoom_out = _tracing(3, lambda own: traced.zoomed(own.side_range), lambda padding: {"padding": padding})
compressed = _tracing(1, lambda own: traced.whole(*own.quality), lambda quality: {"quality": quality})
size = _tracing(1, lambda own: traced.side(own.min_size, own.max_size), lambda size: {"size": size})
shortest = _tracing(1, lambda own: traced.shortest(own.min_size, own.max_size), lambda size: {"size": size})
scale = _tracing(
    1,
    lambda own: traced.jittered(own.target_size, own.scale_range),
    lambda size: {"size": size},
)


def _traced(
    most: int, draws: traced.Draws, apply: Callable[[Any, Any], Any], kind: ImageKind, size: Size = (60, 80)
) -> Built:
    op = TracedTransform(most, draws, apply, kind)
    op.draw(Run(Tape(torch.Generator().get_state(), most)), *size)  # a trial, which may refuse
    return [op], moved(kind)
