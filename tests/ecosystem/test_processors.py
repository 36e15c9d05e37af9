"""Hugging Face transformers: image processors, made of their classes with the defaults of the published models."""

import contextvars
import hashlib
import importlib
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader
from torchvision.io import decode_image

import accel
from accel.hooks import transformers as hook
from accel.lazy.tensor_base import LazyTensorBase, pending_state
from tests.support import helpers
from tests.support.cuda import DEVICE, needs_compiler

transformers = helpers.optional("transformers")

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning:transformers.*")

PROCESSORS: dict[str, dict[str, Any]] = {
    "CLIPImageProcessor": {},
    "ViTImageProcessor": {},
    "SiglipImageProcessor": {},
    "BitImageProcessor": {"size": {"shortest_edge": 256}},  # DINOv2
    "DetrImageProcessor": {"size": {"shortest_edge": 120, "longest_edge": 200}},
    "SamImageProcessor": {"size": {"longest_edge": 192}, "pad_size": {"height": 192, "width": 192}},
    "Qwen2VLImageProcessor": {},
    "LlavaNextImageProcessor": {},
    "Idefics3ImageProcessor": {"size": {"longest_edge": 728}},
    "SmolVLMImageProcessor": {"size": {"longest_edge": 600}, "max_image_size": {"longest_edge": 200}},
    "GotOcr2ImageProcessor": {"crop_to_patches": True},  # InternVL
}
SIZES = ((200, 150), (131, 97), (90, 143), (260, 70))
FILES = [helpers.jpeg(*size, seed=number) for number, size in enumerate(SIZES)]


def processed(name: str, images: Any, **kwargs: Any) -> dict[str, Any]:
    made = getattr(transformers, name)(**PROCESSORS[name])(images, **{"return_tensors": "pt", **kwargs})
    return dict(made)


def opened() -> list[Image.Image]:
    return [Image.open(BytesIO(file)) for file in FILES]


def is_lazy(value: torch.Tensor) -> bool:
    return isinstance(value, LazyTensorBase) and pending_state(value) is not None


@pytest.mark.parametrize("name", PROCESSORS)
def test_opened_files(name: str) -> None:
    """Every field of the result, and its values are computed when they are used."""
    helpers.assert_equal_runs(lambda: processed(name, opened()))
    before = accel.stats()
    with accel.image_backend("cpu"):
        values = processed(name, opened())["pixel_values"]
        assert is_lazy(values)
        assert "recorded: resize" in accel.explain(values)
        assert accel.stats()["images"] == before["images"]
        assert values.clone().equal(processed(name, opened())["pixel_values"])
    after = accel.stats()
    assert (after["computed early"], after["fallbacks"]) == (before["computed early"], before["fallbacks"])


@pytest.mark.parametrize("name", ["CLIPImageProcessor", "Qwen2VLImageProcessor", "DetrImageProcessor"])
def test_a_single_image_and_lists_without_tensors(name: str) -> None:
    helpers.assert_equal_runs(lambda: processed(name, opened()[0]))
    helpers.assert_equal_runs(lambda: processed(name, opened(), return_tensors=None))


def kinds() -> dict[str, Callable[[], Any]]:
    tensors = [torch.from_numpy(np.asarray(image).copy()).permute(2, 0, 1) for image in opened()]
    return {
        "one": lambda: opened()[0],
        "pictures in memory": lambda: [image.copy() for image in opened()],
        "tensors, planar": lambda: [tensor.contiguous() for tensor in tensors],
        "tensors, interleaved": lambda: tensors,
        "a batch": lambda: torch.stack([tensors[0], tensors[0].flip(1)]),
        "floats": lambda: [tensor / 255 for tensor in tensors],
        "arrays": lambda: [np.asarray(image) for image in opened()],
        "decoded": lambda: [decoded(file) for file in FILES],
        "grey": lambda: [Image.open(BytesIO(helpers.jpeg(80, 60, "L"))), *opened()],
        "see-through": lambda: [helpers.picture(60, 80).convert("RGBA"), see_through(), *opened()],
        "palette": lambda: [helpers.picture(60, 80).convert("P"), *opened()],
    }


def decoded(file: bytes) -> torch.Tensor:
    return decode_image(torch.frombuffer(bytearray(file), dtype=torch.uint8))


def see_through() -> Image.Image:
    image = helpers.picture(60, 80)
    image.info["transparency"] = image.getpixel((3, 3))
    return image


@pytest.mark.parametrize("kind", kinds())
@pytest.mark.parametrize("name", ["CLIPImageProcessor", "ViTImageProcessor"])
@pytest.mark.filterwarnings("ignore:The given NumPy array is not writable", "ignore:The image decoding")
def test_kinds_of_images(kind: str, name: str) -> None:
    images = kinds()[kind]
    if name == "ViTImageProcessor" and kind in ("grey", "see-through", "palette"):
        expected = helpers.outcome(processed, name, images())
        with accel.image_backend("cpu"):
            assert type(helpers.outcome(processed, name, images())) is type(expected)
        return
    helpers.assert_equal_runs(lambda: processed(name, images()))


@pytest.mark.parametrize("name", PROCESSORS)
def test_what_was_recorded_is_changed(name: str, tmp_path: Path) -> None:
    """The file, the buffer, the array and the tensor, after the processor has returned."""
    path = tmp_path / "image.jpg"

    def run() -> Any:
        path.write_bytes(FILES[0])
        buffer, tensor, array = BytesIO(FILES[1]), torch.full((3, 90, 120), 7, dtype=torch.uint8), np.ones((60, 70, 3))
        array = array.astype(np.uint8)
        drawn = helpers.picture(80, 70)
        made = processed(name, [Image.open(path), Image.open(buffer), drawn, tensor.permute(1, 2, 0).numpy()])
        more = processed(name, [tensor, torch.from_numpy(array).permute(2, 0, 1)])
        path.write_bytes(FILES[2])
        buffer.getbuffer()[:] = bytes(len(buffer.getbuffer()))
        drawn.paste(0, (0, 0, 80, 70))
        tensor += 100
        array += 100
        return {**made, **{f"more {key}": value for key, value in more.items()}}

    helpers.assert_equal_runs(run)


def test_values_changed_in_place() -> None:
    """What a processor returns is the user's: views of it share its values, and nothing else does."""

    def run() -> Any:
        first, second = (processed("Qwen2VLImageProcessor", opened())["pixel_values"] for _ in range(2))
        part = first[3]
        part += 1
        first[:2] = 0
        return first, second, part, first.sum()

    helpers.assert_equal_runs(run)


@pytest.mark.parametrize("name", ["CLIPImageProcessor", "Qwen2VLImageProcessor", "Idefics3ImageProcessor"])
def test_threads_of_a_server(name: str) -> None:
    """Many requests at once, with the processor of all."""
    processor = getattr(transformers, name)(**PROCESSORS[name])

    def serve(number: int) -> torch.Tensor:
        images = [Image.open(BytesIO(file)) for file in (FILES[number % 4], FILES[(number + 1) % 4])]
        return processor(images, return_tensors="pt")["pixel_values"] + 0

    expected = [serve(number) for number in range(4)]
    with accel.image_backend("cpu"), ThreadPoolExecutor(4) as pool:
        context = contextvars.copy_context
        found = [pool.submit(context().run, serve, number) for number in range(24)]
        assert all(each.result().equal(expected[number % 4]) for number, each in enumerate(found))


def fetched(file: bytes) -> Image.Image:
    """As vLLM loads what it is sent."""
    image = Image.open(BytesIO(file))
    image.load()
    return image.convert("RGB")


def hashed(image: Image.Image, mode: str) -> str:
    """As vLLM hashes an image, before it looks up whether it has seen it; some versions convert to "RGBA"."""
    shown = image if image.mode == mode else image.convert(mode)
    return f"{image.getexif().get(0xA420)} {hashlib.sha256(np.asarray(shown).data).hexdigest()}"


@pytest.mark.parametrize("mode", ["RGB", "RGBA"])
def test_in_a_server(mode: str) -> None:
    """What is served stays lazy to the end; after a hash, the processor begins with the pixels, nothing is decoded."""

    def run(hashes: bool) -> Any:
        images = [fetched(file) for file in FILES]
        digests = [hashed(image, mode) for image in images] if hashes else []
        return digests, processed("Qwen2VLImageProcessor", images)

    before = accel.stats()
    helpers.assert_equal_runs(lambda: run(False))
    assert accel.stats()["computed early"] == before["computed early"]
    helpers.assert_equal_runs(lambda: run(True))
    assert accel.stats()["computed early"] - before["computed early"] == len(FILES)
    with accel.image_backend("cpu"):
        assert "pixel source" in accel.explain(run(True)[1]["pixel_values"])
        assert "from 1 file" in accel.explain(run(False)[1]["pixel_values"])


SERVER = """
import io, multiprocessing, sys
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

from PIL import Image
from transformers import Qwen2VLImageProcessor  # which two threads cannot import at once

def answer(file):
    values = Qwen2VLImageProcessor()(Image.open(io.BytesIO(file)), return_tensors="pt")["pixel_values"]
    return type(values).__name__, values.sum().item()

if __name__ == "__main__":
    files = [open(name, "rb").read() for name in sys.argv[1:]]
    with ThreadPoolExecutor(2) as threads, ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as processes:
        print(*threads.map(answer, files), *processes.map(answer, files), sep="\\n")
"""


def test_accel_run_in_front_of_a_server(tmp_path: Path) -> None:
    """Its threads, and a process that it spawns."""
    files = [str(tmp_path / f"{number}.jpg") for number in range(2)]
    for name, file in zip(files, FILES, strict=False):
        Path(name).write_bytes(file)
    (tmp_path / "server.py").write_text(SERVER)
    command = [sys.executable, "-W", "ignore", "-m", "accel", "run", "--backend", "cpu", str(tmp_path / "server.py")]
    done = subprocess.run([*command, *files], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    sums = [processed("Qwen2VLImageProcessor", Image.open(name))["pixel_values"].sum().item() for name in files]
    assert done.stdout.splitlines() == [str(("PlacedTensor", each)) for each in [*sums, *sums]]


class Samples(torch.utils.data.Dataset[Any]):
    def __init__(self, name: str) -> None:
        self.name = name

    def __len__(self) -> int:
        return 8

    def __getitem__(self, number: int) -> Any:
        return processed(self.name, [Image.open(BytesIO(FILES[number % 4]))])


@pytest.mark.parametrize("backend", ["cpu", "cuda"])
@pytest.mark.parametrize("name", ["CLIPImageProcessor", "Qwen2VLImageProcessor"])
def test_workers_of_a_loader(name: str, backend: str) -> None:
    def run() -> Any:
        return helpers.batches(DataLoader(Samples(name), None, num_workers=1))

    expected = run()
    with accel.image_backend(backend, **({"device": "cpu"} if backend == "cuda" else {})):
        helpers.assert_same(run(), expected)


def test_a_damaged_file() -> None:
    """It raises where values are used, with the reason and the image's number; the others can be computed."""
    with accel.image_backend("cpu"):
        images = [*opened(), Image.open(BytesIO(helpers.undecodable()))]
        values = processed("Qwen2VLImageProcessor", images)["pixel_values"]
        for _ in range(2):
            last = f"image {len(images) - 1} of a batch of {len(images)}"
            with pytest.raises(accel.DecodeError, match=rf"broken data stream .*\({last}\)"):
                values.sum()
        assert processed("Qwen2VLImageProcessor", images[:2])["pixel_values"].isfinite().all()


@needs_compiler
@pytest.mark.parametrize("name", PROCESSORS)
def test_on_a_device(name: str) -> None:
    """The same values, computed by the accelerator backend's batches: nothing is left to the host."""
    expected = processed(name, opened())
    before = accel.stats()
    with accel.image_backend("cuda", device=DEVICE):
        made = processed(name, opened())
        assert is_lazy(made["pixel_values"])
        helpers.assert_same({key: value.to(DEVICE).cpu() for key, value in made.items()}, expected)
        with_device = processed(name, opened(), device="meta")
        assert with_device["pixel_values"].device.type == "meta"
    after = accel.stats()
    assert (after["computed early"], after["fallbacks"]) == (before["computed early"], before["fallbacks"])


ANNOTATIONS = [
    {"image_id": 1, "annotations": [{"image_id": 1, "category_id": 2, "bbox": [1, 2, 10, 12], "area": 120.0}]}
]


@pytest.mark.parametrize(
    ("name", "more"),
    [
        *[(f"{model}ImageProcessor", {}) for model in ("Aria", "Siglip2", "LlavaOnevision", "Qwen2VL")],
        ("LayoutLMv2ImageProcessor", {"apply_ocr": False}),
        ("CLIPImageProcessor", {"device": torch.device("meta")}),
    ],
)
def test_fields_are_on_the_devices_that_the_processor_puts_them_on(name: str, more: dict[str, Any]) -> None:
    def run() -> Any:
        made = getattr(transformers, name)()(opened()[:1], **{"return_tensors": "pt", "device": "meta", **more})
        return {key: value.device for key, value in made.items()}

    expected = run()
    with accel.image_backend("cpu"):
        assert run() == expected


def test_the_processor_itself_puts_annotations_on_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def preprocess(self: Any, *args: Any, **kwargs: Any) -> Any:
        asked.append(kwargs["device"])
        raise KeyError

    monkeypatch.setattr(transformers.DetrImageProcessor, "_preprocess_image_like_inputs", preprocess)
    for annotations in (None, ANNOTATIONS, ANNOTATIONS[0]):
        with accel.image_backend("cpu"), pytest.raises(KeyError):
            transformers.DetrImageProcessor()(opened()[:1], annotations=annotations, device="meta")
    assert asked == ["cpu", "meta", "meta"]


def test_the_number_of_a_device_is_no_cpu() -> None:
    assert [hook.is_cpu(device) for device in (None, "cpu", torch.device("cpu"), 0, 1, "cuda:0")] == [True] * 3 + [
        False
    ] * 3


@pytest.mark.filterwarnings("ignore")  # torch's, of what it does not compile
@pytest.mark.parametrize("name", ["CLIPImageProcessor", "Qwen2VLImageProcessor"])
def test_in_a_compiled_function(name: str) -> None:
    """It is the library's own."""
    processor = getattr(transformers, name)(**PROCESSORS[name])
    processor(opened(), return_tensors="pt")  # what it makes once cannot be compiled

    def run() -> Any:
        torch._dynamo.reset()
        compiled = torch.compile(
            lambda images: processor(images, return_tensors="pt")["pixel_values"] * 2, backend="eager"
        )
        return compiled(opened())

    expected = run()
    with accel.image_backend("cpu"):
        helpers.assert_same(run(), expected)


def test_a_processor_that_computes_on_the_way() -> None:
    """It is equal, and counted: this one resizes floats."""
    before = accel.stats()["fallbacks"]
    helpers.assert_equal_runs(lambda: dict(transformers.DINOv3ViTImageProcessor()(opened(), return_tensors="pt")))
    after = accel.stats()["fallbacks"]
    assert after.keys() - before.keys() <= {"DINOv3ViTImageProcessor computes values before it returns"}
    assert after["DINOv3ViTImageProcessor computes values before it returns"]


def test_outside_of_a_processor_moved_values_are_computed() -> None:
    with accel.image_backend("cpu"):
        batch = processed("CLIPImageProcessor", opened())["pixel_values"]
        assert not is_lazy(batch.permute(0, 2, 3, 1))
        assert type(batch) is torch.Tensor


OTHERS = ("Text", "Audio", "LayoutLM", "LightGlue", "SuperGlue", "EfficientLoFTR", "VitMatte", "VitPose", "ImageGPT")


@pytest.mark.sweep
def test_all_processors_that_there_are() -> None:
    """Equal with their defaults, whatever they do; most record all of it."""
    base = importlib.import_module("transformers.image_processing_backends").TorchvisionBackend
    names = [name for name in dir(transformers) if name.endswith("ImageProcessor") and not name.startswith(OTHERS)]
    lazy, equal = set(), set()
    for name in names:
        kind = helpers.attempt(lambda name=name: getattr(transformers, name))
        if not (isinstance(kind, type) and issubclass(kind, base)) or kind is base:
            continue
        processor = helpers.attempt(kind)
        for images in (opened, lambda: opened()[:1]):  # some make tensors of single images only

            def run(images: Any = images, processor: Any = processor) -> Any:
                return dict(processor(images(), return_tensors="pt"))

            expected = helpers.attempt(run)
            if isinstance(expected, dict):
                break
        if isinstance(expected, dict):
            with accel.image_backend("cpu"):
                made = run()
                lazy |= {name for value in made.values() if is_lazy(value)}
                helpers.assert_same(made, expected)
            equal.add(name)
    assert len(equal) > 100
    assert len(lazy) > 0.6 * len(equal)
