"""``accel.explain``: a description of what was recorded and what would run it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any

import torch
from PIL import Image

from accel.backend import backend_of
from accel.codec.header import Raw
from accel.lazy.image import LazyImage
from accel.lazy.placed import PlacedState
from accel.lazy.tensor_base import pending_state
from accel.ops import LEFT, OPS
from accel.ops.helpers import THREADS
from accel.ops.resample import SUPPORT, Aten
from accel.planning.order import has_tail, parts
from accel.planning.plan import Decode, Item, plan
from accel.planning.stages import Axis, Effect, Stage
from accel.planning.torch_tail import tailed_plans
from accel.processes import slot_pool, switch
from accel.recipes.arrived import Arrived
from accel.recipes.recipe import Branch, Recipe, Source, Step
from accel.recipes.rows import Rows
from accel.runtime import sharing, small_requests, worker_batches
from accel.runtime.memo import results
from accel.system import counters


def explain(x: Any) -> str:
    """Describe what accel would do for ``x``. Nothing is computed.

    Args:
        x: a lazy image, a lazy tensor (one image or a batch), or a list or tuple of such; or a dataset, its DataLoader
            or a transform: the text says whether it is compiled, or why not. For anything else the text says that it
            is not accel's, and which backend is in force.

    Returns:
        Lines of text that name the source, the recorded steps, the decoded part of the picture, the fused stages, and
        the backend and decoder that run them.
    """
    if isinstance(x, LazyImage):
        title = f"lazy image {x.mode} {x.size[0]}x{x.size[1]}"
        if x.recipe is not None:
            return _explain(title, (x.recipe,), interleaved=True)
        by = f", asked for by {x._touched_by}" if x._touched_by else ""
        return f"{title}: its pixels are computed{by}; what is done to it from now on, Pillow runs at once."
    if (lazy := pending_state(x)) is not None:
        title = f"lazy tensor {list(x.shape)} {_short(x.dtype)}"
        if lazy.part is not None:
            title += f", submitted ({lazy.part})"
        if isinstance(lazy, PlacedState):
            title += f", {_many(len(lazy.recipes), 'part')} of which come from images and are put in their places"
            return _explain(f"{title}; the first", lazy.recipes[:1], True) if lazy.recipes else title
        return _explain(title, lazy.recipes, lazy.made[2], lazy.after)
    left = "".join(f"; {name} is left to torchvision ({why})" for name, why in LEFT.items())
    in_force = f"The image backend in force is {switch.current().name!r}{left}."
    if isinstance(x, torch.Tensor):
        return f"plain tensor {list(x.shape)} {_short(x.dtype)}: {_computed(x)}. {in_force}"
    if isinstance(x, Image.Image):
        kind = type(x).__name__
        return f"plain Pillow image ({kind}, {x.mode}, {x.size}): Pillow runs what is done to it. {in_force}"
    if isinstance(x, (list, tuple)):
        return "\n".join(explain(each) for each in x)
    text = "; ".join(filter(None, (tell(x) for tell in _others))) or f"{type(x).__name__}: nothing of accel's"
    return f"{text}. {in_force}"


def _computed(tensor: torch.Tensor) -> str:
    """How a tensor's values were computed, as far as is known."""
    about = slot_pool.about(tensor) if tensor.layout == torch.strided and tensor.device.type == "cpu" else None
    if about is None:
        return "its values are computed; print(accel.summary()) says how accel's images were"
    worker, images, slow, threads = about
    how = f"{slow} of them not the fast way: print(accel.summary()) says why" if slow else "all the fast way"
    return f"computed by DataLoader worker {worker} on {_many(threads, 'thread')}, {_many(images, 'image')}, {how}"


def summary() -> str:
    """Say whether accel is on, and whether all images of this process and its workers went the fast way.

    Returns:
        Lines of text: the backend in force and how many images were computed; then how often something was not done
        the fast way, and why; the files that were replaced; how the transforms of these images were recorded; on how
        many threads workers computed their batches, and how often they were told to go further ahead. The numbers are
        those of ``accel.stats()``. That Pillow decodes formats other than JPEG is not counted.
    """
    found = counters.stats()
    lines = [_headline(found)]
    lines += [f"  {reason}" for reason in _reasons(found)]
    if found["replaced"]:
        names = ", ".join(found["replaced files"][:3]) + ", ..." * (len(found["replaced files"]) > 3)
        lines.append(f"  {_many(found['replaced'], 'image')} of damaged files became black: {names}")
    if found["ways"]:
        lines.append("How their transforms were recorded:")
        lines += [f"  {_many(many, 'image')}: {way}" for way, many in _most_first(found["ways"])]
    if found["worker threads"]:
        numbers = [f"{many:,} on {_many(number, 'thread')}" for number, many in found["worker threads"].items()]
        lines.append(f"Batches of DataLoader workers: {', '.join(numbers)}")
    if found["prefetch raised"]:
        lines.append(f"For input in bursts, workers went twice as far ahead: {_many(found['prefetch raised'], 'time')}")
    lines += [f"{batches} batches are under way of {loader}" for loader, batches in found["tuned"].items()]
    return "\n".join(lines)


def summary_in_a_line() -> str:
    """The first line of ``summary``, with the most frequent reason for what was not done the fast way."""
    found = counters.stats()
    reasons = _reasons(found)
    others = f" (and {_many(len(reasons) - 1, 'other reason')})" if reasons[1:] else ""
    return " ".join([_headline(found), *reasons[:1]]) + others


def _headline(found: dict[str, Any]) -> str:
    selection, images = switch.current(), found["images"]
    state = "accel is off" if selection.steps_aside else f"accel is on (backend {selection.name!r})"
    if not images:
        return f"{state}: no image was computed by it yet."
    slow = found["fallbacks"] or found["replaced"] or found["computed early"]
    how = "but not everything was done the fast way:" if slow else "all the fast way."
    return f"{state}: {_many(images, 'image')} computed by this process and its workers, {how}"


def _reasons(found: dict[str, Any]) -> list[str]:
    """What was not done the fast way, and how often: fallbacks, and who else asked for single images."""
    named = found["fallbacks"]
    early = {
        f"{asker} asked for a single image": many
        for asker, many in found["computed early by"].items()
        if not any(reason.startswith(f"{asker} asked") for reason in named)
    }
    return [f"{many:,} time{'s' * (many != 1)}: {reason}" for reason, many in _most_first({**named, **early})]


def _most_first(counts: dict[str, int]) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda item: -item[1])


_others: list[Callable[[Any], str | None]] = []


def also(tell: Callable[[Any], str | None]) -> None:
    """Have ``explain`` ask ``tell`` about objects that are no image or tensor; it returns None for unknown ones."""
    _others.append(tell)


def _explain(title: str, recipes: Sequence[Recipe], interleaved: bool, after: tuple[Step, ...] = ()) -> str:
    selection, given = recipes[0].source.selection, recipes
    recipes = given.recipes if isinstance(given, Arrived) else given
    if has_tail(recipes):
        whole = tailed_plans(recipes)
        plans, recipe, (number, position) = whole.plans, recipes[0], whole.places[whole.tails[0].base]
    else:
        plans = (plan(recipes, interleaved=interleaved),)
        number, position = 0, plans[0].decodes[0].items[0].position
        recipe = recipes[position]
    sources = {id(decode.source): decode.source for each in plans for decode in each.decodes}
    raw = [isinstance(source.header, Raw) for source in sources.values()]
    what = "pixel source" if all(raw) else "source" if any(raw) else "file"
    lines = [f"{title}: {_many(len(recipes), 'image')} from {_many(len(sources), what)}"]
    first = plans[number]
    decode, item = next((d, i) for d in first.decodes for i in d.items if i.position == position)
    lines.append(f"  first source: {decode.source!r}, {_content(decode.source)}")
    if kept := [f"{_entry(steps)} ({entry.size} bytes)" for entry, steps in results.described(recipe)]:
        lines.append(f"  kept by the cache: {', '.join(kept)}")
    recorded = [_steps(recipe.steps), *map(_step, after)]
    lines.append("  recorded: " + (" -> ".join(filter(None, recorded)) or "nothing yet"))
    if isinstance(recipes, Rows):
        lines.append("  together: the steps are those of all images, and what differs in each is a row of numbers")
    lines += _planned(decode, item, "read" if raw[0] else "decode")
    if kernels := _kernels(parts(recipe.steps)[2]):
        lines.append(f"  then torchvision's own kernels, on the values, where they are: {kernels}")
    if len(plans) > 1:
        lines.append(f"  images that differ in what comes before that are {len(plans)} plans; this is one")
    if kernels := _kernels(after):
        lines.append(f"  then on the whole batch: {kernels}")
    lines.extend(f"  {line}" for line in worker_batches.describe(given, interleaved))
    lines.append(f"  backend: {selection.name} ({', '.join(f'{k}={v!r}' for k, v in vars(selection.options).items())})")
    lines.extend(f"  left to torchvision: {name} ({why})" for name, why in LEFT.items())
    lines.extend(
        f"  {line}" for line in (*sharing.describe(backend_of(selection), first), *small_requests.describe(recipes))
    )
    return "\n".join(lines)


def _kernels(steps: tuple[Step, ...]) -> str:
    return " -> ".join(name for name, _ in steps if name != THREADS)


def _content(source: Source) -> str:
    """What of a source is in memory."""
    if source.origin is not None:
        return f"lazy itself: {_steps(source.origin.steps)}"
    return f"{len(source.data)} bytes" if source.is_read else "known to the cache, and not read"


def _planned(decode: Decode, item: Item, verb: str) -> list[str]:
    """Lines for the plan of one image."""
    header = decode.source.header
    top, left, height, width = decode.box
    share = 100 * height * width / (header.height * header.width)
    return [
        f"  {verb}: rows {top}..{top + height}, columns {left}..{left + width} ({share:.0f}% of the picture)",
        *(f"  stage {number + 1}: {_stage(stage)}" for number, stage in enumerate(item.stages)),
        f"  values: table of {item.table.shape[0]} x 256 {_short(item.table.dtype)}",
    ]


def _entry(steps: tuple[Step, ...] | None) -> str:
    """The content of a cache entry, in words."""
    return "half-decoded" if steps is None else f"the result of {_steps(steps)}" if steps else "all pixels"


def _steps(steps: tuple[Step, ...]) -> str:
    """Steps in words, in the order of the plan."""
    return " -> ".join(_step(step) for part in parts(steps) for step in part)


def _many(count: int, what: str) -> str:
    return f"{count:,} {what}{'s' * (count != 1)}"


def _step(step: Step) -> str:
    name, params = step
    values = ", ".join(f"{key}={_short(value)}" for key, value in zip(OPS[name].params, params, strict=True))
    return f"{name}({values})"


def _short(value: Any) -> str:
    if isinstance(value, Branch):
        return _steps(value.steps) or "the image"
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, tuple):
        return "(" + ", ".join(map(_short, value)) + ")"
    if isinstance(value, torch.Tensor):
        return f"tensor{list(value.shape)}"
    if isinstance(value, bytes):
        return f"{len(value)} levels"
    return f"{value:.4g}" if isinstance(value, float) else str(value).removeprefix("torch.")


def _stage(stage: Stage) -> str:
    levels = "; levels looked up" if stage.levels is not None else ""
    if isinstance(stage, Effect):
        height, width = stage.output_size
        return f"{stage.kind}: {_step((stage.op, stage.params))}; {height} x {width}{levels}"
    rows, columns = _axis(stage.rows), _axis(stage.columns)
    dialect, codes = ("Pillow", Image.Resampling) if stage.resample in SUPPORT else ("torch", Aten)
    name = f" with {dialect}'s {codes(stage.resample).name}" if stage.resample else ""
    return f"one pass{name}; rows {rows}; columns {columns}{levels}"


def _axis(axis: Axis) -> str:
    view = f"{axis.view.length}{' listed' if axis.view.table is not None else ' flipped' * (axis.view.step < 0)}"
    window = f"{axis.window.length}"
    flipped = " flipped" * (axis.window.table is None and axis.window.step < 0)
    part = "" if axis.extent is None else f", {axis.extent.begin:.6g} to {axis.extent.end:.6g},"
    resized = f"{part} -> {axis.size}" if axis.resampled else ""
    return f"{view}{resized} -> {window} shown{flipped}"
