"""Accelerate: its documented training loop, and loaders that it makes anew, shares out or dispatches."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

import accel
from tests.support import helpers
from tests.support.ecosystem import proven
from tests.support.loaders import TRAIN

accelerate = helpers.optional("accelerate")
data_loader = helpers.optional("accelerate.data_loader")

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning:accelerate.*"),
    pytest.mark.filterwarnings("ignore::FutureWarning:accelerate.*"),
]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_training_loop(paths: list[str], workers: int) -> None:
    def run() -> Any:
        accelerator = accelerate.Accelerator(cpu=True)
        model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 32 * 32, 12))
        optimizer = torch.optim.SGD(model.parameters(), 0.01)
        loader = DataLoader(helpers.Files(paths, TRAIN), 4, shuffle=True, num_workers=workers)
        model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
        seen = []
        for _ in range(2):
            for images, labels in loader:
                optimizer.zero_grad()
                loss = torch.nn.functional.cross_entropy(model(images), labels)
                accelerator.backward(loss)
                optimizer.step()
                seen.append([images, labels, loss.detach()])
        return seen, [parameter.detach() for parameter in model.parameters()]

    seen, _ = proven(run, images=24)
    assert len(seen) == 6


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("options", [{}, {"split_batches": True}, {"dispatch_batches": True}], ids=str)
def test_loaders_that_are_made_anew(paths: list[str], workers: int, options: dict[str, Any]) -> None:
    def run() -> Any:
        loader = DataLoader(helpers.Files(paths, TRAIN), 4, shuffle=True, num_workers=workers)
        if options.get("dispatch_batches"):
            loader = DataLoader(helpers.Stream(paths, TRAIN), 4, num_workers=workers)
        prepared = data_loader.prepare_data_loader(
            loader, torch.device("cpu"), num_processes=1, process_index=0, put_on_device=True, **options
        )
        again = data_loader.prepare_data_loader(prepared, torch.device("cpu"), num_processes=1, process_index=0)
        return [batch for each in (prepared, again) for batch in each]

    assert len(helpers.assert_equal_runs(run)) >= 6


def test_two_shards_make_the_whole(paths: list[str]) -> None:
    def run() -> Any:
        loader = DataLoader(helpers.Files(paths, TRAIN), 3, num_workers=1)
        return [
            list(data_loader.prepare_data_loader(loader, num_processes=2, process_index=index)) for index in range(2)
        ]

    helpers.assert_equal_runs(run)


def trained(paths: list[str], place: Path, workers: int, prepares: bool, resumes: bool) -> Any:
    """What the steps of a training saw that is saved behind the third: its batches, and the random states."""
    helpers.seed_everything(2 if resumes else 1)
    accelerator = accelerate.Accelerator(cpu=True)
    loader: Any = DataLoader(helpers.Files(paths, TRAIN), 2, shuffle=True, num_workers=workers)
    loader = accelerator.prepare(loader) if prepares else loader
    accelerator.register_for_checkpointing(loader)
    if resumes:
        accelerator.load_state(str(place))
    seen = []
    for images, labels in loader:
        torch.rand(3)  # dropout
        seen.append((images.clone(), labels, torch.get_rng_state()))
        if len(seen) == 3 and not resumes:
            accelerator.save_state(str(place))
    return seen


@pytest.mark.parametrize(("workers", "prepares"), [(0, False), (2, False), (2, True)])
def test_a_loader_in_a_checkpoint(paths: list[str], tmp_path: Path, workers: int, prepares: bool) -> None:
    with accel.image_backend("cpu"):
        expected = trained(paths, tmp_path, workers, prepares, resumes=False)
        helpers.assert_same(trained(paths, tmp_path, workers, prepares, resumes=True), expected[3:])


def test_a_prepared_loader_without_workers(paths: list[str], tmp_path: Path) -> None:
    """Its batches are made before the step in front of them, which draws, too."""
    with accel.image_backend("cpu"):
        trained(paths, tmp_path, 0, prepares=True, resumes=False)
        with pytest.raises(accel.ResumeError, match="the loader needs a worker"):
            trained(paths, tmp_path, 0, prepares=True, resumes=True)
