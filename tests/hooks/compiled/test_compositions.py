"""Compositions, datasets and loaders at random, users' own among them: batches and random states are torchvision's."""

import copy
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._pytree import tree_map
from torchvision import tv_tensors
from torchvision.transforms import v2

import accel
from accel import testing
from accel.hooks.compiled import single
from tests.hooks.compiled import sampled, standing
from tests.hooks.compiled.composer import Composer
from tests.hooks.compiled.support import TOGETHER, ways
from tests.support import helpers
from tests.support.cuda import needs_compiler

pytestmark = pytest.mark.filterwarnings("ignore:.*image decoding and encoding:DeprecationWarning")

OF_USERS = ("Own", "OftenFlipped", "Lambda")


@pytest.fixture(scope="module")
def roots(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    made = tmp_path_factory.mktemp("sampled")
    return [sampled.write(made / "photos"), sampled.write(made / "odd", odd=True)]


def compare(roots: list[Path], seed: int, runs: int = 1, **options: Any) -> dict[str, int]:
    """Compare what a seed says with torchvision; how many images of batches went which way."""
    sample = sampled.sample(roots[seed % 7 == 6], seed, **options)
    before = accel.stats()["ways"]
    for run in range(runs):
        try:
            helpers.assert_equal_runs(sample.run, run)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}, run {run}: {sample.transform}") from error
    found = ways(before)
    assert TOGETHER not in found or not any(name in str(sample.transform) for name in OF_USERS)
    return found


def test_samples(roots: list[Path], thorough: bool) -> None:
    together = 0
    seeds = range(2000 if thorough else 60)
    for seed in seeds:
        together += TOGETHER in compare(roots, seed, 20 if seed % 20 == 19 and thorough else 1)
    assert together > len(seeds) // 8


@needs_compiler
def test_samples_on_a_device(roots: list[Path], thorough: bool) -> None:
    def computed(value: Any) -> Any:
        return testing.computed(value) if helpers.is_lazy(value) else value

    for seed in range(3000, 3300 if thorough else 3012):
        sample = sampled.sample(roots[0], seed, lambda batch: tree_map(computed, batch))
        actual = helpers.run("cuda", sample.run, device="cpu")
        helpers.assert_same(actual, helpers.run("torchvision", sample.run))


def test_compositions_of_single_images(root: Path, thorough: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a dataset of the user's own calls them, with labels beside them where v2 takes some."""
    monkeypatch.setattr(single, "FIRST", 0)
    paths = sorted(map(str, root.rglob("*.jpg")))

    def run(transform: Any, rng: random.Random) -> list[Any]:
        found: list[Any] = []
        for number, path in enumerate(paths):
            labels = rng.sample((number, "a", None, torch.tensor([number]), 0.5), rng.randint(0, 2))
            given = labels if isinstance(transform, v2.Compose) else ()
            made = helpers.attempt(lambda: transform(helpers.open_rgb(path), *given))  # noqa: B023
            image = made[0] if type(made) is tuple else made
            if isinstance(image, torch.Tensor):
                found += [isinstance(image, tv_tensors.Image), (image + 0).contiguous()]
                found += made[1:] if type(made) is tuple else ()
            else:  # an image, or an error, whose message may tell the class of one
                found.append((image, made[1].replace("LazyPlainImage", "Image")) if type(image) is type else made)
            found.append(hash(helpers.random_states()))
        return found

    seeds = range(2000, 2600 if thorough else 2028)
    compiled = 0
    for seed in seeds:
        transform = Composer(seed, user=seed % 4 == 3).pipeline()
        before = accel.stats()["ways"]
        try:
            helpers.assert_equal_runs(lambda: run(transform, random.Random(seed)), seed)  # noqa: B023
        except AssertionError as error:
            raise AssertionError(f"composition {seed}: {transform}") from error
        compiled += "alone, compiled" in ways(before, alone=True)
    assert compiled > len(seeds) // 4


@pytest.mark.sweep
@pytest.mark.parametrize("context", ["fork", "spawn", "forkserver"])
def test_samples_in_workers(roots: list[Path], context: str) -> None:
    """Loaders with workers of their own: few where each imports torch; below are many in those that stay."""
    for seed in range(1000, 1200 if context == "fork" else 1005):
        compare(roots, seed, num_workers=1 + seed % 2, multiprocessing_context=context)


# -- stock pipelines and compositions in workers, however these are started ------------------------------------------


@pytest.mark.parametrize(
    ("method", "backend"),
    [
        ("spawn", "cpu"),
        *(pytest.param(method, "cpu", marks=pytest.mark.sweep) for method in ("fork", "forkserver")),
        *(pytest.param(way, "cuda", marks=[pytest.mark.sweep, needs_compiler]) for way in ("fork", "spawn")),
    ],
)
def test_many_pipelines(
    method: str, backend: str, root: Path, tmp_path_factory: pytest.TempPathFactory, thorough: bool
) -> None:
    made = tmp_path_factory.mktemp("sampled")
    roots = [sampled.write(made / "photos"), sampled.write(made / "odd", odd=True)]
    cases = [
        *standing.of_pipelines(root, 20 if thorough else 1),
        *standing.of_compositions(roots, range(4000, 4600 if thorough else 4030)),
    ]
    # forked workers give the same, and import torch for none; shared memory that is kept takes a descriptor a batch
    expected = [copy.deepcopy(found) for found in standing.run(cases, "fork")]
    options: dict[str, Any] = {"device": "cpu"} if backend == "cuda" else {}
    before = accel.stats()["ways"]
    with accel.image_backend(backend, **options):
        for number, found in enumerate(standing.run(cases, method)):
            try:
                helpers.assert_same(found, expected[number])
            except AssertionError as error:
                raise AssertionError(cases[number].about if number < len(cases) else "random states") from error
    assert number == len(cases)
    assert ways(before)[TOGETHER] > 2 * len(cases)
    assert ways(before, alone=True)["alone, compiled"] > len(cases)
