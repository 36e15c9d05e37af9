"""The dali backend around its operators: options, exactness, results, broken files, structures, processes."""

import gc
import os
from functools import partial
from io import BytesIO
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader
from torchvision import transforms as T
from torchvision.transforms import functional as F
from torchvision.transforms import v2

import accel
from accel import testing
from accel.backends.dali import backend, pipeline
from accel.codec import agreement
from accel.processes.switch import current
from tests.support import cuda, helpers
from tests.support.helpers import MEAN, STD, Files, assert_same, jpeg, pictures, undecodable
from tests.support.processes import in_threads, plain

helpers.optional("nvidia.dali")

CPU = torch.device("cpu")
BOTH = pytest.mark.parametrize("exact", [True, False], ids=["exact", "inexact"])


def by_dali(function: Any, **options: Any) -> Any:
    """The function's recordings, computed by the backend."""
    with accel.image_backend("dali", **{"device": "cpu", "threads": 2, **options}):
        return testing.computed(function())


def opened(streams: list[bytes], size: tuple[int, int] = (20, 30)) -> torch.Tensor:
    return torch.stack([F.to_tensor(F.resize(Image.open(BytesIO(each)), list(size))) for each in streams])


def good(count: int, width: int = 64) -> list[bytes]:
    return [jpeg(width, 48, seed=seed) for seed in range(count)]


def near(found: torch.Tensor, wanted: torch.Tensor, exact: bool) -> None:
    """Equal, or apart as DALI's resize is (values are 0 to 1)."""
    if exact:
        assert_same(found, wanted)
    else:
        apart = (found - wanted).abs() * 255
        assert apart.max() <= 20
        assert apart.mean() < 0.8


# -- options, and whether it can run ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"threads": 0}, ValueError),
        ({"threads": True}, ValueError),
        ({"hw_decoder_load": 1.5}, ValueError),
        ({"hw_decoder_load": "all"}, ValueError),
        ({"prefetch": 0}, ValueError),
        ({"device": "mps"}, ValueError),
        ({"device": 0}, TypeError),
        ({"decode": "auto"}, TypeError),
    ],
)
def test_wrong_options(options: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        accel.set_image_backend("dali", **options)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a device")
def test_without_a_gpu_the_cpu_operators_run() -> None:
    with accel.image_backend("dali"):
        assert current().options == backend.DaliOptions(device="cpu")
        assert_same(opened(good(2)).to("cpu"), plain(lambda: opened(good(2))))
    with pytest.raises(accel.BackendUnavailable, match=r"no CUDA device; .*device='cpu'"):
        accel.set_image_backend("dali", device="cuda")


@pytest.mark.parametrize(("missing", "said"), [("nvidia.dali", "DALI is"), ("nvidia.nvimgcodec", "nvImageCodec is")])
def test_what_is_missing_is_said_with_the_command(missing: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = backend.find_spec
    monkeypatch.setattr(backend, "find_spec", lambda name: None if name == missing else found(name))
    with pytest.raises(accel.BackendUnavailable, match=r"pip install 'accel-vision\[dali\]'"):
        accel.set_image_backend("dali", device="cpu")
    assert str(accel.image_backends()["dali"]).startswith(said)


def test_nothing_of_dali_is_imported_before_a_batch_runs() -> None:
    code = f"""
import sys, io, torch, accel
from PIL import Image
from torchvision.transforms import functional as F
accel.set_image_backend("dali", device="cpu", exact=False)
batch = torch.stack([F.to_tensor(F.resize(Image.open(io.BytesIO({good(1)[0]!r})), [20, 30]))])
accel.explain(batch)
assert not [name for name in sys.modules if name.startswith("nvidia.dali")]
batch.to("cpu")
assert "nvidia.dali" in sys.modules
print("end")
"""
    assert helpers.python(code) == "end\n"  # and nothing else is said, at the end neither


# -- results ------------------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("exact_again", [0, 1])
def test_files_of_every_kind_in_one_batch(exact: bool, exact_again: int) -> None:
    """Ragged, grey, progressive, with restart markers, one pixel."""
    wanted, found = plain(cuda.pipeline), by_dali(cuda.pipeline, exact=exact)
    if exact:
        assert_same(found, wanted)
    else:
        levels = (found - wanted).abs() * torch.tensor(STD).view(3, 1, 1) * 255
        assert levels.max() <= 12
        assert levels.mean() < 0.5


@BOTH
def test_files_that_accel_does_not_claim(exact: bool, tmp_path: Any) -> None:
    """PNG and CMYK are pixels by the time they are recorded."""
    picture = Image.open(BytesIO(jpeg(60, 50)))
    for name, mode in (("png", "RGB"), ("grey.png", "L"), ("jpg", "CMYK")):
        picture.convert(mode).save(tmp_path / f"file.{name}")

    def batch() -> torch.Tensor:
        files = sorted(tmp_path.iterdir())
        return torch.stack([F.to_tensor(F.resize(Image.open(file).convert("RGB"), [20, 30])) for file in files])

    near(by_dali(batch, exact=exact), plain(batch), exact)


def test_every_region_is_pillows() -> None:
    """DALI's decoder alone, without a resize: single rows, columns and pixels as well."""
    draw = np.random.default_rng(0)
    for each in pictures():
        width, height = each.open().size
        for _ in range(12):
            rows, columns = (
                int(draw.integers(1, min(size, draw.choice([3, size]) + 1) + 1)) for size in (height, width)
            )
            top, left = int(draw.integers(0, height - rows + 1)), int(draw.integers(0, width - columns + 1))

            def region(each: Any = each, box: Any = (top, left, rows, columns)) -> Any:
                return F.pil_to_tensor(F.crop(each.open(), *box))

            for exact in (True, False):
                assert_same(by_dali(region, exact=exact), plain(region))


def test_v2_pipelines() -> None:
    transform = v2.Compose([v2.ToImage(), v2.Resize((40, 50), antialias=True), v2.ToDtype(torch.float32, scale=True)])

    def batch() -> torch.Tensor:
        return torch.stack([transform(each.open().convert("RGB")) for each in pictures()[:4]])

    wanted = plain(batch)
    assert torch.equal(by_dali(batch), wanted)
    near(torch.Tensor(by_dali(batch, exact=False)), torch.Tensor(wanted), exact=False)


def test_should_dali_decode_otherwise_it_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agreement, "agrees", lambda *_: False)
    monkeypatch.setattr(pipeline, "Pipeline", lambda *_, **__: pytest.fail("DALI ran"))
    batch = lambda: opened(good(3))  # noqa: E731
    assert_same(by_dali(batch, prefetch=7), plain(batch))  # a backend of its own


def test_results_are_dalis_own_memory_and_stay_as_they_are() -> None:
    """No copy on the way to torch; and later batches are written elsewhere."""
    given: list[int] = []
    run = pipeline.Pipeline.run

    def watched(self: Any, *arguments: Any) -> Any:
        outputs = run(self, *arguments)
        given.append(torch.from_dlpack(outputs.as_tensor()).data_ptr())  # type: ignore[attr-defined]
        return outputs

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pipeline.Pipeline, "run", watched)
        first = by_dali(lambda: opened(good(5)), exact=False)
        assert first.data_ptr() == given[-1]
        kept = first.clone()
        for _ in range(4):
            again = by_dali(lambda: opened(good(5)[::-1]), exact=False)
            assert again.data_ptr() != first.data_ptr()
    first.add_(0)  # it may be written to
    assert torch.equal(first, kept)


@BOTH
@pytest.mark.parametrize("broken", [None, 1])
def test_images_of_a_file_that_lie_apart_in_a_batch(exact: bool, broken: int | None) -> None:
    """A file's images are decoded together, or come one after another to DALI; their places are their own."""
    streams = [undecodable(seed=n) if n == broken else each for n, each in enumerate(good(3))]

    def batch() -> torch.Tensor:
        images = [Image.open(BytesIO(each)) for each in streams]
        windows = [(n, corner) for corner in (0, 7, 30) for n in (0, 1, 2)]
        return torch.stack([F.to_tensor(F.crop(images[n], 2, corner, 24, 32)) for n, corner in windows])

    found = by_dali(batch, exact=exact, on_error="replace")
    streams = good(3)
    wanted = plain(batch)
    if broken is not None:
        wanted[broken::3] = 0
    near(found, wanted, exact)
    assert not torch.equal(found[0], found[3])


@BOTH
def test_channels_last(exact: bool) -> None:
    def batch() -> torch.Tensor:
        return opened(good(3)).contiguous(memory_format=torch.channels_last)

    found, wanted = by_dali(batch, exact=exact), plain(batch)
    assert found.stride() == wanted.stride()
    near(found, wanted, exact)


def test_half_precision() -> None:
    batch = lambda: opened(good(3)).half()  # noqa: E731
    found, wanted = by_dali(batch, exact=False), plain(batch)
    assert found.dtype == torch.float16
    near(found.float(), wanted.float(), exact=False)


# -- pipelines ----------------------------------------------------------------------------------------------


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, int]]:
    """The structures that pipelines are built for, with how many images they take at a time."""
    made: list[tuple[Any, int]] = []
    init = pipeline.Pipeline.__init__

    def counted(self: Any, structure: Any, most: int, *arguments: Any, **named: Any) -> None:
        made.append((structure, most))
        init(self, structure, most, *arguments, **named)

    monkeypatch.setattr(pipeline.Pipeline, "__init__", counted)
    return made


def test_a_pipeline_is_built_once_for_all_parameters(built: list[tuple[Any, int]]) -> None:
    for number in range(6):
        streams = [jpeg(40 + number, 50 + n, seed=n) for n in range(4)]
        batch = lambda streams=streams, number=number: opened(streams, (20 + number, 30))  # noqa: E731
        near(by_dali(batch, exact=False, prefetch=11), plain(batch), exact=False)
    assert len(built) == 1


def test_batches_of_other_sizes(built: list[tuple[Any, int]]) -> None:
    for count in (3, 1, 16, 17, 40, 2, 33):
        batch = lambda count=count: opened(good(count))  # noqa: E731
        near(by_dali(batch, exact=False, prefetch=12), plain(batch), exact=False)
    assert [most for _, most in built] == [16, 32, 64]


def test_several_pipelines_live_side_by_side(built: list[tuple[Any, int]]) -> None:
    transforms = [lambda x: F.vflip(F.invert(x)), F.invert, F.autocontrast, lambda x: F.rgb_to_grayscale(x, 3)]
    for _ in range(3):
        for transform in transforms:
            image = lambda transform=transform: F.pil_to_tensor(transform(Image.open(BytesIO(good(1)[0]))))  # noqa: E731
            apart = by_dali(image, exact=False, prefetch=13).short() - plain(image).short()
            assert apart.abs().max() <= 1
    assert len(built) == len(transforms)


def test_threads_take_turns_or_have_pipelines_of_their_own() -> None:
    wanted = plain(lambda: opened(good(6)))

    def work(exact: bool) -> None:
        for _ in range(5):
            near(by_dali(lambda: opened(good(6)), exact=exact), wanted, exact)

    in_threads([partial(work, bool(number % 2)) for number in range(6)])


def test_an_error_of_another_kind_is_not_taken_for_a_broken_file(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: Any, *_: Any) -> Any:
        raise RuntimeError("Error in CPU operator resize: something else")

    by_dali(lambda: opened(good(2)), exact=False)
    monkeypatch.setattr(pipeline.Pipeline, "run", broken)
    with pytest.raises(RuntimeError, match="something else"):
        by_dali(lambda: opened(good(2)), exact=False)


# -- broken files -------------------------------------------------------------------------------------------


@BOTH
def test_what_dali_declines_and_pillow_reads_is_right(exact: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The third file alone is DALI's failure: the other way round it would be lost."""
    streams, run = good(8), pipeline.Pipeline.run

    def declines(self: Any, sources: Any, *rest: Any) -> Any:
        if any(bytes(each) == streams[2] for each in sources):
            raise RuntimeError("Error in CPU operator `nvidia.dali.fn.decoders.image_slice`")
        return run(self, sources, *rest)

    wanted = plain(lambda: opened(streams))
    by_dali(lambda: opened(streams), exact=exact)
    monkeypatch.setattr(pipeline.Pipeline, "run", declines)
    found = by_dali(lambda: opened(streams), exact=exact)
    near(found, wanted, exact)
    assert torch.equal(found[2], wanted[2])  # by the cpu backend


@BOTH
@pytest.mark.parametrize("on_error", ["replace", "raise"])
def test_memory_stays_flat_over_many_broken_batches(exact: bool, on_error: str) -> None:
    streams = [jpeg(320, 240, seed=seed) for seed in range(12)]
    bad = [undecodable(320, 240, seed=seed) for seed in range(12)]

    def run(number: int) -> None:
        mixed = [bad[n] if n == number % 12 else stream for n, stream in enumerate(streams)]
        with accel.image_backend("dali", device="cpu", threads=1, exact=exact, on_error=on_error):
            if on_error == "replace":
                opened(mixed).to("cpu")
            else:
                with pytest.raises(accel.DecodeError):
                    opened(mixed).to("cpu")

    for number in range(20):
        run(number)
    gc.collect()
    before = resident()
    for number in range(200):
        run(number)
    # a batch's pixels are 2.8 MB, its result 0.1 MB
    assert resident() - before < 40 << 20


def resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


# -- processes ----------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("end", ["exit", "_exit"])
def test_a_forked_child_leaves_dali_alone(end: str) -> None:
    """In a process of its own: the child uses the backend, ends like any process, and does not hang."""
    code = f"""
import io, os, sys, torch, accel
from PIL import Image
from torchvision.transforms import functional as F
def batch():
    return torch.stack([F.to_tensor(F.resize(Image.open(io.BytesIO({good(1)[0]!r})), [20, 30])) for _ in range(3)])
wanted = batch()
accel.set_image_backend("dali", device="cpu", exact=False)
batch().to("cpu")
child = os.fork()
if child == 0:
    right = torch.equal(batch().to("cpu"), wanted)  # by the cpu backend
    told = any("forked" in reason for reason in accel.stats()["fallbacks"])
    {"sys.exit" if end == "exit" else "os._exit"}(0 if right and told else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert (batch().to("cpu") - wanted).abs().max() < 0.1  # by DALI again
"""
    helpers.python("import warnings; warnings.simplefilter('ignore')\n" + code, timeout=60)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("context", [None, "fork"])
def test_a_loader_that_is_near(context: str | None, paths: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    run, runs = pipeline.Pipeline.run, list[int]()
    monkeypatch.setattr(pipeline.Pipeline, "run", lambda *arguments: (runs.append(1), run(*arguments))[1])
    transform = T.Compose([T.RandomResizedCrop(24), T.RandomHorizontalFlip(), T.ToTensor(), T.Normalize(MEAN, STD)])

    def epoch() -> list[torch.Tensor]:
        torch.manual_seed(3)
        workers = 0 if context is None else 2
        loader = DataLoader(Files(paths, transform), 4, num_workers=workers, multiprocessing_context=context)
        return [images.to("cpu").clone() for images, _ in helpers.batches(loader)]

    wanted = plain(epoch)
    with accel.image_backend("dali", device="cpu", exact=False):
        for found, right in zip(epoch(), wanted, strict=True):
            assert ((found - right).abs() * 0.23 * 255).mean() < 1.5
    assert len(runs) >= len(wanted), "DALI ran nothing"
