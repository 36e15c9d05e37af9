"""Ray Data: rows are recorded on any node, and computed where they are used.

    rows = ray.data.read_binary_files(files, include_paths=True)
    rows = rows.map_batches(accel.ray.Recorder(transform, seed=0, key="path"))
    for images in rows.iter_torch_batches(batch_size=256, collate_fn=accel.wire.collate): ...

Nothing of Ray is imported before it is used.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from io import BytesIO
from operator import index
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image

from accel.processes import switch
from accel.resuming import random_states
from accel.system import counters, notes
from accel.system.imports import LazyModule
from accel.wire import dumps

__all__ = ["Recorder"]

_data: Any = LazyModule("ray.data")

MESSAGE = "message"
"""The column of the recorded rows, of bytes."""


class Recorder:
    """A function for ``map_batches``: one message of ``accel.wire`` for each row, with its image recorded.

    A row's sample is a dictionary: ``image``, what the transform makes of it, and the row's other columns but the key.
    The random numbers that the transform draws from torch, Python and NumPy depend on the seed, the epoch and the row's
    key alone, so they are the same wherever, in whichever order, and how often a row is recorded. The generators of the
    process are afterwards as they were before, so its threads must not record at once. A row that cannot be read
    raises, with a note of its key; under ``on_error="replace"`` (of the backend in force) its image is black.
    """

    def __init__(
        self,
        transform: Callable[[Any], Any],
        *,
        seed: int,
        key: str | Sequence[str],
        image: str = "bytes",
        epoch: int | None = None,
        send: Literal["recipes", "auto"] = "auto",
    ) -> None:
        """Args:
            transform: takes a Pillow image of mode "RGB", as ``ImageFolder`` gives it.
            seed: of all random numbers.
            key: the column that tells rows apart (a path, an id), or several that do so together. Rows of one batch
                with equal keys draw the same, and are counted in ``accel.stats()["fallbacks"]``.
            image: the column with the encoded files, or with pixels, uint8 [height, width, 3].
            epoch: the number of the epoch. None: how often Ray has executed the dataset, and others that were made of
                the same one, to their ends.
            send: see ``accel.wire.dumps``.

        Raises:
            TypeError: there is no key, or an argument is of the wrong type. ValueError: ``send`` is none of these.
        """
        keys = (key,) if isinstance(key, str) else tuple(key)
        if not keys or not all(isinstance(each, str) for each in keys):
            raise TypeError(f"key must name the column that tells rows apart, or several of them, got {key!r}")
        if send not in ("recipes", "auto"):
            raise ValueError(f"send must be 'recipes' or 'auto', got {send!r}")
        self._transform, self._image, self._send = transform, image, send
        self._seed, self._keys, self._epoch = index(seed), keys, epoch if epoch is None else index(epoch)

    def __call__(self, batch: Mapping[str, npt.NDArray[Any]]) -> dict[str, Any]:
        """Record the rows of a batch of columns.

        Raises:
            KeyError: a column is missing.
            ValueError: a key column has lists in it, or another column would hide the image.
            RuntimeError: Ray does not say which epoch it is, and ``epoch`` was not given.
        """
        epoch = _execution() if self._epoch is None else self._epoch
        keys = [*zip(*(_plain(batch[name]) for name in self._keys), strict=True)]
        if len({*keys}) < len(keys):
            counters.fallback("rows with equal keys drew equal random numbers: a second key column separates them")
        others = {name: values for name, values in batch.items() if name not in (*self._keys, self._image)}
        if "image" in others:
            raise ValueError(f"a column is named 'image', as what is made of {self._image!r} will be: rename it")
        contents = batch[self._image]
        messages = np.empty(len(keys), object)
        options = {"threads": 1, "cache": None, "on_error": switch.current().options.on_error}
        states = random_states.current({})
        try:
            with switch.image_backend("cpu", **options):
                for number, key in enumerate(keys):
                    labels = {name: _item(values[number]) for name, values in others.items()}
                    messages[number] = self._message((epoch, key), contents[number], labels)
        finally:
            random_states.restore(states, {})
        return {MESSAGE: messages}

    def _message(self, drawn_from: tuple[Any, ...], content: Any, labels: dict[str, Any]) -> bytes:
        try:
            draw_from(self._seed, *drawn_from)
            return dumps({"image": self._transform(_opened(content)), **labels}, send=self._send)
        except Exception as error:
            row = ", ".join(f"{name} {value!r}" for name, value in zip(self._keys, drawn_from[-1], strict=True))
            notes.add(error, f"the row of {row}")
            raise


def draw_from(*key: Any) -> None:
    """Have the global generators of torch (on the CPU), Python and NumPy begin at a state that depends on the key
    alone."""
    number = int.from_bytes(blake2b(repr(key).encode("utf-8", "surrogatepass"), digest_size=16).digest(), "little")
    torch.default_generator.manual_seed(number & (1 << 64) - 1)
    random.seed(number)
    np.random.seed([number >> shift & 0xFFFFFFFF for shift in (0, 32, 64, 96)])  # noqa: NPY002  transforms draw from it


def _execution() -> int:
    """The number of times that Ray has executed this dataset, and its relatives, to their ends."""
    number = getattr(_data.DataContext.get_current(), "_execution_idx", None)
    if not isinstance(number, int):
        raise RuntimeError("this version of Ray does not say which epoch it is: give Recorder an epoch")
    return number


def _plain(column: Any) -> list[Any]:
    values = [_item(value) for value in (column.tolist() if isinstance(column, np.ndarray) else column)]
    if any(isinstance(value, (list, dict, np.ndarray)) for value in values):
        raise ValueError("the values of a key column must be numbers or strings")
    return values


def _item(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _opened(content: Any) -> Image.Image:
    if isinstance(content, np.ndarray):
        return Image.fromarray(content).convert("RGB")
    return Image.open(BytesIO(content)).convert("RGB")
