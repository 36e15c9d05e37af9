"""Lowering effects to DALI operators: a line for each op that DALI has an equivalent for."""

from __future__ import annotations

from collections.abc import Callable

from accel.backends.dali.operator_chain import OperatorChain
from accel.ops.row import Params
from accel.planning.stages import Effect


def add_effect(chain: OperatorChain, effect: Effect) -> str | None:
    """Add the operators of an effect on the whole input; return the reason if DALI has none."""
    found = _EFFECTS.get(effect.op)
    if found is None:
        return _REFUSED.get(effect.op, f"DALI has no {effect.op}")
    return found(chain, effect.params)


_REFUSED = {
    "adjust_hue": "DALI turns the hue in another colour space",
    "perspective": "DALI has no perspective warp on the CPU",
    "elastic": "DALI has no displacement by a field on the CPU",
}


def _grey(chain: OperatorChain, params: Params) -> None:
    if chain.channels == 3:
        chain.add("grey", (), (), channels=1)
    if params[0] == 3:
        chain.add("colour", (), (), channels=3)


def _sharpness(chain: OperatorChain, params: Params) -> None:
    """Blend with a smoothed image that keeps the image's own border, as Pillow does."""
    height, width = chain.size
    if height > 2 and width > 2:
        smooth = tuple(weight / 13 for weight in (1, 1, 1, 1, 5, 1, 1, 1, 1))
        frame = ((1, 1), (height - 2, width - 2)), ((-1, -1), (height, width))
        chain.add("sharpness", (), ((float(params[0]),), smooth, *frame[0], *frame[1]))


def _blur(chain: OperatorChain, params: Params) -> None:
    kernel_x, kernel_y, sigma_x, sigma_y, _ = params
    chain.add("gaussian_blur", (), ((kernel_y, kernel_x), (float(sigma_y), float(sigma_x))))


def _affine(chain: OperatorChain, params: Params) -> str | None:
    height, width, matrix, resample, fill = params
    if resample not in (0, 2):
        return "DALI warps by nearest neighbours and bilinearly only"
    colour = set((fill * 3)[: chain.channels])
    if len(colour) > 1:
        return "DALI warps onto one grey only"
    static = ("LINEAR" if resample else "NN", float(colour.pop()))
    chain.add("warp_affine", static, (tuple(map(float, matrix)), (height, width)), (height, width))
    return None


def _jpeg(chain: OperatorChain, params: Params) -> str | None:
    if chain.channels != 3:
        return "DALI has no JPEG of grey images"
    chain.add("jpeg_compression_distortion", (), ((int(params[0]),),))
    return None


_EFFECTS: dict[str, Callable[[OperatorChain, Params], str | None]] = {
    "adjust_contrast": lambda chain, params: chain.add("contrast", (chain.channels,), ((float(params[0]),),)),
    "autocontrast": lambda chain, params: chain.add("autocontrast", (), ()),
    "equalize": lambda chain, params: chain.add("equalize", (), ()),
    "adjust_saturation": lambda chain, params: chain.add("saturation", (), ((float(params[0]),),)),
    "to_grayscale": _grey,
    "convert": lambda chain, params: None if chain.channels == 3 else chain.add("colour", (), (), channels=3),
    "permute_channels": lambda chain, params: chain.add("permute", tuple(params[0]), ()),
    "adjust_sharpness": _sharpness,
    "gaussian_blur": _blur,
    "affine": _affine,
    "transpose": lambda chain, params: chain.add("transpose", (), (), chain.size[::-1]),
    "jpeg": _jpeg,
}
