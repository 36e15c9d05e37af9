"""DALI on a GPU: results, order and lifetimes on real streams."""

from functools import partial
from io import BytesIO
from typing import Any

import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader
from torchvision import transforms as T
from torchvision.transforms import functional as F

import accel
from accel.backend import backend_of
from accel.planning.plan import Plan, plan
from accel.processes.switch import current
from tests.support import helpers
from tests.support.helpers import jpeg, undecodable
from tests.support.processes import in_threads

pytestmark = pytest.mark.gpu

helpers.optional("nvidia.dali")

BUSY = 2_000_000_000  # cycles: about a second
BOTH = pytest.mark.parametrize("exact", [True, False], ids=["exact", "inexact"])


def device() -> torch.device:
    return torch.device("cuda", torch.cuda.current_device())


def files(seed: int, count: int = 24, broken: tuple[int, ...] = ()) -> list[bytes]:
    good = [jpeg(300 + 7 * n, 240 + 5 * n, seed=seed + n, subsampling=n % 3) for n in range(count)]
    return [undecodable(seed=n) if n in broken else stream for n, stream in enumerate(good)]


def batch(streams: list[bytes], size: int = 96) -> torch.Tensor:
    images = [F.hflip(F.resize(Image.open(BytesIO(each)), [size, size])) for each in streams]
    return torch.stack([F.to_tensor(image) for image in images])


def expected(streams: list[bytes], size: int = 96) -> torch.Tensor:
    with accel.image_backend("torchvision"):
        return batch(streams, size)


def program(streams: list[bytes], size: int = 96, **options: Any) -> tuple[Any, Plan]:
    with accel.image_backend("dali", **options):
        return backend_of(current()), plan(batch(streams, size).lazy.recipes)  # type: ignore[attr-defined]


def near(found: torch.Tensor, wanted: torch.Tensor, exact: bool) -> None:
    """DALI's decoder on a GPU upsamples chroma and transforms in an arithmetic of its own."""
    apart = (found.cpu() - wanted).abs() * 255
    if exact:
        assert not apart.any()
    else:
        assert apart.max() <= 24
        assert apart.mean() < 1.5


@BOTH
def test_results_on_the_device(exact: bool) -> None:
    running, wanted = program(files(0), exact=exact)
    result = running.run_on(wanted, device())
    assert result.device == device()
    near(result, expected(files(0)), exact)


def test_nothing_waits_for_the_stream() -> None:
    running, wanted = program(files(0), exact=False)
    stream, done = torch.cuda.Stream(), torch.cuda.Event()
    with torch.cuda.stream(stream):
        running.run_on(wanted, device())  # the pipeline is built, memory is there
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(BUSY)
        result = running.run_on(wanted, device())
        done.record(stream)
    assert not done.query(), "run_on waited for its stream"
    torch.cuda.current_stream().wait_event(done)
    near(result, expected(files(0)), exact=False)


def test_results_behind_a_busy_stream_keep_their_pixels() -> None:
    """DALI's memory is used again only after the stream has copied from it."""
    results, stream = [], torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(BUSY)
        for seed in range(0, 600, 100):
            running, wanted = program(files(seed), exact=False)
            results.append(running.run_on(wanted, device()))
    torch.cuda.synchronize()
    for seed, result in zip(range(0, 600, 100), results, strict=True):
        near(result, expected(files(seed)), exact=False)


def test_results_used_on_another_stream_are_not_written_over() -> None:
    """The consumer is slow, and the batch is dropped while it still reads."""
    kept: list[torch.Tensor] = []
    with accel.image_backend("dali", exact=False):
        for seed in range(0, 600, 100):
            images = batch(files(seed)).to("cuda")
            torch.cuda._sleep(BUSY // 10)
            kept.append(images.clone())
            del images
    for seed, images in zip(range(0, 600, 100), kept, strict=True):
        near(images, expected(files(seed)), exact=False)


def test_a_whole_batch_is_dalis_own_memory() -> None:
    with accel.image_backend("dali", exact=False):
        batch(files(0)).to("cuda")
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        found = batch(files(0)).to("cuda")
        assert torch.cuda.memory_allocated() - before < found.nbytes
    near(found, expected(files(0)), exact=False)


@BOTH
def test_many_threads(exact: bool) -> None:
    def work(seed: int) -> None:
        running, wanted = program(files(seed), exact=exact)
        for _ in range(4):
            with torch.cuda.stream(torch.cuda.Stream()):
                near(running.run_on(wanted, device()), expected(files(seed)), exact)

    in_threads([partial(work, 100 * number) for number in range(4)])


@BOTH
def test_a_broken_file_is_isolated(exact: bool) -> None:
    streams = files(0, broken=(3, 7))
    with (
        pytest.raises(accel.DecodeError, match=r"\(image 3 of a batch of 24\)"),
        accel.image_backend("dali", exact=exact),
    ):
        batch(streams).to("cuda")
    with accel.image_backend("dali", exact=exact, on_error="replace"):
        found = batch(streams).to("cuda")
    wanted = expected(files(0))
    wanted[[3, 7]] = 0
    near(found, wanted, exact)


def test_what_dali_does_not_finish_is_decoded_on_the_host() -> None:
    def lazy() -> torch.Tensor:
        images = [F.adjust_hue(F.resize(Image.open(BytesIO(each)), [50, 60]), 0.1) for each in files(0, 6)]
        return torch.stack([F.to_tensor(image) for image in images])

    with accel.image_backend("torchvision"):
        wanted = lazy()
    with accel.image_backend("dali", exact=False):
        assert "left to the cpu or cuda backend" in accel.explain(lazy())
        found = lazy().to("cuda")
    assert torch.equal(found.cpu(), wanted)  # all of it, after DALI's decoder on the host


def every_op(image: Any) -> list[Any]:
    """A picture by each of DALI's operators."""
    image = F.resize(image, [64, 80])
    return [
        F.vflip(image),
        F.pad(image, [3, 2, 1, 4], fill=7),
        F.adjust_brightness(image, 1.3),
        F.adjust_contrast(image, 0.6),
        F.adjust_saturation(image, 1.6),
        F.adjust_gamma(image, 0.7),
        F.adjust_sharpness(image, 1.7),
        F.invert(image),
        F.posterize(image, 3),
        F.solarize(image, 120),
        F.autocontrast(image),
        F.equalize(image),
        F.gaussian_blur(image, 5),
        F.rotate(image, 12),
        F.rgb_to_grayscale(image, 3),
    ]


@pytest.mark.parametrize("number", range(15))
def test_every_operator_runs_on_the_device(number: int) -> None:
    stream = jpeg(200, 150, seed=2)
    with accel.image_backend("torchvision"):
        wanted = F.to_tensor(every_op(Image.open(BytesIO(stream)))[number])
    with accel.image_backend("dali", exact=False):
        lazy = F.to_tensor(every_op(Image.open(BytesIO(stream)))[number])
        assert "left to" not in accel.explain(lazy)
        found = lazy.to("cuda")
    apart = (found.cpu() - wanted).abs() * 255
    assert apart.median() <= 6
    assert apart.mean() < 12


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_pinned_loader_runs_ahead(paths: list[str]) -> None:
    transform = T.Compose([T.RandomResizedCrop(24), T.RandomHorizontalFlip(), T.ToTensor()])

    def epoch() -> list[torch.Tensor]:
        torch.manual_seed(3)
        loader = DataLoader(helpers.Files(paths, transform), 4, num_workers=2, pin_memory=True)
        return [images.to("cuda", non_blocking=True).cpu() for images, _ in helpers.batches(loader)]

    with accel.image_backend("torchvision"):
        wanted = epoch()
    with accel.image_backend("dali"):
        for found, right in zip(epoch(), wanted, strict=True):
            assert torch.equal(found, right)
