"""Libraries that decode only: those that imread-benchmark compares and that are no contestants otherwise.

Each returns an array [height, width, 3] uint8 of a file, as that benchmark calls it, with one thread. Pillow-SIMD is no
contestant: it takes Pillow's place in its environment, where the reference would then be Pillow-SIMD as well.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bench.contestants.contestant import Contestant, InLoader, planes
from bench.pipelines import Draw, Pipeline


class Decoder(InLoader):
    """A library that decodes.

    Args:
        distributions: what pip installs; the first is its title.
        module: the module that it needs.
        settings: the calls, in words.
        reader: makes the function that reads a file, given the module.
    """

    pipelines = frozenset({"decode"})

    def __init__(
        self, distributions: tuple[str, ...], module: str, settings: str, reader: Callable[[Any], Callable[[str], Any]]
    ) -> None:
        self.title = distributions[0]
        self.key = self.title.lower()
        self.distributions, self.modules, self.settings = distributions, (module,), settings
        self._reader = reader

    def one(self, pipeline: Pipeline) -> Callable[[Any, Draw], Any]:
        read = self._reader(import_module(self.modules[0]))
        return lambda file, draw: planes(_in_color(read(file)))


def _in_color(image: Any) -> npt.NDArray[np.uint8]:
    """An array [height, width, 3]: some return one without channels, or with one, for a grey file."""
    pixels = np.asarray(image)
    return pixels if pixels.shape[2:] == (3,) else np.repeat(pixels.reshape(*pixels.shape[:2], 1), 3, axis=2)


def _of_bytes(decode: Callable[..., Any], **options: Any) -> Callable[[str], Any]:
    return lambda file: decode(Path(file).read_bytes(), **options)


def _vips(module: Any) -> Callable[[str], Any]:
    return lambda file: module.Image.new_from_file(file, access="sequential").numpy()


def _tensorflow(module: Any) -> Callable[[str], Any]:
    module.config.threading.set_intra_op_parallelism_threads(1)
    module.config.threading.set_inter_op_parallelism_threads(1)
    return lambda file: module.io.decode_jpeg(module.io.read_file(file), channels=3).numpy()


DECODERS: tuple[Contestant, ...] = (
    Decoder(("simplejpeg",), "simplejpeg", "decode_jpeg", lambda it: _of_bytes(it.decode_jpeg)),
    Decoder(
        ("PyTurboJPEG",),
        "turbojpeg",
        "TurboJPEG().decode(pixel_format=TJPF_RGB), with the system's libturbojpeg",
        lambda it: _of_bytes(it.TurboJPEG().decode, pixel_format=it.TJPF_RGB),
    ),
    Decoder(
        ("jpeg4py",),
        "jpeg4py",
        "JPEG(file).decode(), with the system's libturbojpeg",
        lambda it: lambda file: it.JPEG(file).decode(),
    ),
    Decoder(("imagecodecs",), "imagecodecs", "jpeg_decode", lambda it: _of_bytes(it.jpeg_decode)),
    Decoder(("ajpegli",), "ajpegli", "imread(mode='RGB')", lambda it: lambda file: it.imread(file, mode="RGB")),
    Decoder(("imageio",), "imageio.v3", "v3.imread", lambda it: it.imread),
    Decoder(("scikit-image",), "skimage.io", "io.imread", lambda it: it.imread),
    Decoder(("pyvips", "pyvips-binary"), "pyvips", "Image.new_from_file(access='sequential').numpy()", _vips),
    Decoder(("tensorflow-cpu",), "tensorflow", "io.decode_jpeg(io.read_file(file), channels=3).numpy()", _tensorflow),
)
