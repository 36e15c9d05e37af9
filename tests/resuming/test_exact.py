"""A training that is killed and goes on from its checkpoint equals the one that went through, and torchvision's."""

import io
import os
import random
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

import accel
from bench.resume import cases
from bench.resume.cases import Case
from tests.support import helpers
from tests.support.processes import finished, linux, started

pytestmark = pytest.mark.filterwarnings("ignore")  # of loaders with more workers than cores, and pinned without a GPU

PER_EPOCH = 7  # batches of 4 of 26 files
CUTS = (1,), (PER_EPOCH,), (2 * PER_EPOCH - 1,), (2, 3, 5), (PER_EPOCH - 1, PER_EPOCH)
OPTIONS: list[dict[str, Any]] = [{"persistent": True}, {"method": "spawn"}, {"pin": True}, {"drop_last": True}]


def check(case: Case, root: Path) -> None:
    assert cases.compared(case, root)[0] == ""


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("sampler", cases.SAMPLERS)
def test_each_sampler(root: Path, workers: int, sampler: str) -> None:
    check(Case(sampler=sampler, workers=workers, seed=3), root)


@pytest.mark.parametrize("cuts", CUTS, ids=str)
@pytest.mark.parametrize("workers", [0, 2])
def test_where_it_is_killed(root: Path, workers: int, cuts: tuple[int, ...]) -> None:
    """Behind the first and the last batch of an epoch, and again within the epoch that was resumed."""
    check(Case(workers=workers, cuts=cuts, seed=5), root)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("persistent", [False, True])
def test_saved_between_epochs(root: Path, workers: int, persistent: bool) -> None:
    """What is drawn between loading and the first batch makes no difference."""
    check(Case(workers=workers, persistent=persistent and workers > 0, cuts=(3,), between=True, epochs=3), root)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_each_option(root: Path, options: dict[str, Any]) -> None:
    check(Case(workers=2, cuts=(4, 9), **options), root)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("dataset", cases.DATASETS)
def test_each_dataset(root: Path, workers: int, dataset: str) -> None:
    sampler = "sequential" if dataset == "iterable" else "shuffle"
    check(Case(dataset=dataset, sampler=sampler, workers=workers, cuts=(2, 10)), root)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", cases.PLANTED)
def test_generators_of_the_users(root: Path, workers: int, kind: str) -> None:
    """In dataset, sampler and collate function."""
    check(Case(dataset="own", sampler="batches", planted=kind, workers=workers, cuts=(2, 7)), root)


@pytest.mark.parametrize("number", range(12))
def test_random_cases(root: Path, number: int) -> None:
    check(cases.chosen(number + 1000), root)


@pytest.mark.sweep
@pytest.mark.parametrize("number", range(1000))
def test_many_random_cases(root: Path, number: int) -> None:
    check(cases.chosen(number, ("fork", "spawn")), root)


SCRIPT = """
import random, sys, warnings
warnings.simplefilter("ignore")
from pathlib import Path
import torch
import accel
from bench.resume import cases

root, checkpoint, workers, resumes = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4] == "resumes"
sampler, rank = sys.argv[5], int(sys.argv[6])
accel.set_image_backend("cpu")
loader = cases.loader(cases.Case(sampler=sampler, rank=rank, workers=workers, seed=8), root)
if sampler == "ranks":
    torch.distributed.init_process_group("gloo", f"file://{sys.argv[7]}", rank=rank, world_size=2)
cases.seeded(0 if not resumes else 1)
if resumes:
    loader.load_state_dict(torch.load(checkpoint, weights_only=True))
for number, (images, labels) in enumerate(loader):
    torch.rand(3)
    if sampler == "ranks":
        torch.distributed.all_reduce(images.sum())
    print(float(images.double().sum()), labels.tolist(), torch.get_rng_state().sum().item(), flush=True)
    if not resumes and number == 2:
        torch.save(loader.state_dict(), checkpoint)
        print("saved", flush=True)
"""


@linux
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(("sampler", "ranks"), [("shuffle", 1), ("ranks", 2)])
def test_processes_that_are_killed(root: Path, tmp_path: Path, workers: int, sampler: str, ranks: int) -> None:
    """One, or two ranks whose steps gather with gloo."""

    def begun(how: str, meeting: str) -> list[Any]:
        each = ((rank, str(tmp_path / f"checkpoint{rank}.pt")) for rank in range(ranks))
        last = str(tmp_path / meeting)
        return [started(SCRIPT, str(root), place, str(workers), how, sampler, str(rank), last) for rank, place in each]

    before: list[list[str]] = [[] for _ in range(ranks)]
    processes = begun("begins", "first")
    for process, lines in zip(processes, before, strict=True):
        while "saved\n" not in lines:
            lines.append(process.stdout.readline())
            assert lines[-1], "it ended"
    for process in processes:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    whole = [finished(process) for process in begun("begins", "second")]
    after = [finished(process) for process in begun("resumes", "third")]
    assert [status for status, _, _ in whole + after] == [0] * 2 * ranks, after
    for lines, (_, rest, _), (_, expected, _) in zip(before, after, whole, strict=True):
        assert "".join(lines) + rest == expected


# -- traps ---------------------------------------------------------------------------------------------------


def one(root: Path, **options: Any) -> DataLoader[Any]:
    return cases.loader(Case(**options), root)


def labels(batches: Any) -> list[Any]:
    return [(images.clone(), labels) for images, labels in batches]


def saved_after(loader: Any, count: int) -> Any:
    """The state behind so many batches, and the batches that come then."""
    batches = iter(loader)
    for _ in range(count):
        next(batches)
    return loader.state_dict(), batches


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("first", ["script", "loader"])
def test_who_sets_the_generators_last_wins(root: Path, workers: int, first: str) -> None:
    """A script's own states hold if it sets them after ``iter()``; those of the loader if it sets them before."""
    accel.set_image_backend("cpu")
    cases.seeded(0)
    state, batches = saved_after(one(root, workers=workers), 3)
    own, expected = torch.get_rng_state(), labels(batches)
    loader = one(root, workers=workers)
    loader.load_state_dict(state)  # type: ignore[attr-defined]
    cases.seeded(9)
    resumed = iter(loader)
    assert torch.equal(torch.get_rng_state(), own)
    if first == "loader":
        torch.manual_seed(5)
        mine = torch.get_rng_state()
    found = [next(resumed)]
    if first == "loader":
        assert workers == 0 or torch.equal(torch.get_rng_state(), mine)
        assert workers == 2 or not torch.equal(found[0][0], expected[0][0])
    else:
        helpers.assert_same(labels([*found, *resumed]), expected)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_state_is_used_once(root: Path, workers: int) -> None:
    """The epoch behind the one that was resumed has all batches again, and its own order."""
    accel.set_image_backend("cpu")
    cases.seeded(0)
    state, batches = saved_after(one(root, workers=workers), 3)
    del batches
    loader = one(root, workers=workers)
    loader.load_state_dict(state)  # type: ignore[attr-defined]
    assert [len(list(loader)) for _ in range(3)] == [PER_EPOCH - 3, PER_EPOCH, PER_EPOCH]


def test_a_state_before_it_is_used_is_the_loaded_one(root: Path) -> None:
    accel.set_image_backend("cpu")
    state, batches = saved_after(one(root), 3)
    expected = labels(batches)
    between, last = one(root), one(root)
    between.load_state_dict(state)  # type: ignore[attr-defined]
    last.load_state_dict(between.state_dict())  # type: ignore[attr-defined]
    helpers.assert_same(labels(last), expected)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_resumed_loader_is_saved_before_its_first_batch(root: Path, workers: int) -> None:
    accel.set_image_backend("cpu")
    state, batches = saved_after(one(root, workers=workers), 3)
    expected = labels(batches)
    between, last = one(root, workers=workers), one(root, workers=workers)
    between.load_state_dict(state)  # type: ignore[attr-defined]
    begun = iter(between)
    last.load_state_dict(between.state_dict())  # type: ignore[attr-defined]
    helpers.assert_same(labels(last), expected)
    del begun


def test_batches_that_are_prefetched_when_a_state_is_saved_come_again(root: Path) -> None:
    accel.set_image_backend("cpu")
    dataset = helpers.Files(sorted(map(str, root.rglob("*.jpg"))), cases.TRAIN)
    loader: Any = DataLoader(dataset, 2, num_workers=2, prefetch_factor=4)
    state, batches = saved_after(loader, 1)
    expected = labels(batches)
    loader.load_state_dict(state)
    helpers.assert_same(labels(loader), expected)
    assert len(expected) == 12


def test_two_iterators_of_a_loader(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Saving goes on, with a warning, as it may be a library's; loading the state is refused."""
    accel.set_image_backend("cpu")
    loader: Any = one(root)
    first, second = iter(loader), iter(loader)
    next(first), next(second)
    with pytest.raises(accel.ResumeError, match="two iterators of this loader are alive"):
        one(root).load_state_dict(loader.state_dict())  # type: ignore[attr-defined]
    assert "two iterators" in caplog.text
    del second
    one(root).load_state_dict(loader.state_dict())  # type: ignore[attr-defined]


def test_an_evaluation_between_does_not_turn_back_the_generators(root: Path) -> None:
    """Of two loaders saved together, the one between epochs leaves random states alone when its turn comes."""

    def run(state: Any) -> tuple[list[Any], Any]:
        train, evaluation = one(root, seed=1), one(root, sampler="sequential")
        seen, saved = [], None
        if state is not None:
            train.load_state_dict(state[0])  # type: ignore[attr-defined]
            evaluation.load_state_dict(state[1])  # type: ignore[attr-defined]
        for number, batch in enumerate(train):
            seen.append(labels([batch])[0])
            if state is None and number == 3:
                saved = train.state_dict(), evaluation.state_dict()  # type: ignore[attr-defined]
        return [*seen, *labels(evaluation), torch.get_rng_state()], saved

    accel.set_image_backend("cpu")
    cases.seeded(1)
    expected, state = run(None)
    cases.seeded(2)
    found, _ = run(state)
    helpers.assert_same(found, expected[4:])


def test_a_state_loads_without_accel(root: Path, tmp_path: Path) -> None:
    accel.set_image_backend("cpu")
    state, _ = saved_after(one(root, dataset="own", planted="numpy", workers=2), 3)
    torch.save(state, tmp_path / "state.pt")
    path = str(tmp_path / "state.pt")
    script = f"import sys, torch; torch.load({path!r}, weights_only=True); print('accel' in sys.modules)"
    assert finished(started(script)) == (0, "False\n", "")


def test_without_the_switch_a_loader_has_no_state() -> None:
    loader = DataLoader([1, 2])  # type: ignore[arg-type]
    assert not hasattr(loader, "state_dict")
    with accel.image_backend("cpu"):
        assert hasattr(loader, "state_dict")
    assert not hasattr(loader, "state_dict")


def test_torchs_own_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DataLoader, "state_dict", lambda self: "torch's", raising=False)
    monkeypatch.setattr(DataLoader, "load_state_dict", lambda self, state: None, raising=False)
    with accel.image_backend("cpu"):
        assert DataLoader([1, 2]).state_dict() == "torch's"  # type: ignore[arg-type, attr-defined]


def test_states_as_plain_values(root: Path) -> None:
    """All states of this process come back, with the normal number that each generator keeps for the next call."""
    accel.set_image_backend("cpu")
    torch.randn(1), random.gauss(0, 1), np.random.normal()  # noqa: NPY002
    loader: Any = one(root)
    stream = io.BytesIO()
    torch.save(loader.state_dict(), stream)
    expected = torch.randn(1), random.gauss(0, 1), np.random.normal()  # noqa: NPY002
    stream.seek(0)
    loader.load_state_dict(torch.load(stream, weights_only=True))
    assert (torch.randn(1), random.gauss(0, 1), np.random.normal()) == expected  # noqa: NPY002


def test_more_seeds_differ(root: Path) -> None:
    """The comparison would see a difference."""
    case = Case()
    runs = [cases.train(replace(case, seed=seed), root)[0] for seed in range(2)]
    assert cases.difference(*runs) == "batch 0, in epoch 0"
    assert cases.difference(runs[0], runs[0][:-1]) == "13 batches instead of 14"
