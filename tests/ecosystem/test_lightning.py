"""Lightning: its Trainer makes the loaders anew, with samplers and worker_init_fn of its own."""

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

import accel
from tests.support import helpers
from tests.support.ecosystem import proven
from tests.support.loaders import TRAIN

lightning = helpers.optional("lightning")

pytestmark = pytest.mark.filterwarnings("ignore")  # Lightning warns of the machine, of workers, of its own imports


class Module(lightning.LightningModule):  # type: ignore[misc]
    """Keeps what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(3, 2)
        self.seen: list[Any] = []

    def training_step(self, batch: Any, number: int) -> torch.Tensor:
        images, labels = batch
        self.seen.append([images.detach().clone(), labels.clone()])
        return torch.nn.functional.mse_loss(self.layer(images.mean((2, 3)))[:, 0], labels.float())

    def predict_step(self, batch: Any, number: int) -> torch.Tensor:
        self.seen.append([torch.clone(each) for each in batch])
        return self.layer(batch[0].mean((2, 3)))

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), 0.1)


QUIET = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("step", ["fit", "predict"])
def test_a_trainer(paths: list[str], tmp_path: Path, workers: int, step: str) -> None:
    def run() -> Any:
        lightning.seed_everything(1, workers=True, verbose=False)
        module = Module()
        trainer = lightning.Trainer(max_epochs=2, accelerator="cpu", default_root_dir=tmp_path, **QUIET)
        loader = DataLoader(helpers.Files(paths, TRAIN), 4, shuffle=step == "fit", num_workers=workers)
        getattr(trainer, step)(module, loader)
        return module.seen, [parameter.detach() for parameter in module.parameters()]

    seen, _ = proven(run, images=24 if step == "fit" else 12)
    assert len(seen) == (6 if step == "fit" else 3)


def test_half_precision_computes_each_image_once(paths: list[str], tmp_path: Path) -> None:
    """Lightning casts a batch, and then sends it to the device."""

    def run() -> Any:
        lightning.seed_everything(1, workers=True, verbose=False)
        module = Module()
        trainer = lightning.Trainer(accelerator="cpu", precision="bf16-true", default_root_dir=tmp_path, **QUIET)
        trainer.predict(module, DataLoader(helpers.Files(paths, TRAIN), 4))
        return module.seen

    seen = proven(run, images=len(paths))
    assert seen[0][0].dtype == torch.bfloat16


class Killed(Exception):
    pass


class KilledModule(Module):
    """One that saves a checkpoint behind a step, and is killed."""

    def __init__(self, after: int, place: Path) -> None:
        super().__init__()
        self.after, self.place, self.states = after, place, list[Any]()

    def training_step(self, batch: Any, number: int) -> torch.Tensor:
        torch.rand(3)  # dropout
        self.states.append(torch.get_rng_state())
        return super().training_step(batch, number)

    def on_train_batch_end(self, *_: Any) -> None:
        if len(self.seen) == self.after:
            self.trainer.save_checkpoint(self.place)
            raise Killed


def fitted(paths: list[str], place: Path, workers: int = 0, kill: int = 0, resumes: bool = False) -> Any:
    """What the steps of a training saw: their batches, and the random states."""
    lightning.seed_everything(2 if resumes else 1, workers=True, verbose=False)
    module, loader = KilledModule(kill, place), DataLoader(helpers.Files(paths, TRAIN), 2, True, num_workers=workers)
    trainer = lightning.Trainer(max_epochs=2, accelerator="cpu", default_root_dir=place.parent, **QUIET)
    with suppress(Killed):
        trainer.fit(module, loader, ckpt_path=place if resumes else None, weights_only=True if resumes else None)
    return [*zip(module.seen, module.states, strict=True)]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kill", [2, 7])
def test_a_training_that_is_killed(paths: list[str], tmp_path: Path, workers: int, kill: int) -> None:
    """It saves and loads the states of loaders by itself."""
    with accel.image_backend("cpu"):
        expected = fitted(paths, tmp_path / "whole", workers)
        begun = fitted(paths, tmp_path / "checkpoint", workers, kill)
        resumed = fitted(paths, tmp_path / "checkpoint", workers, resumes=True)
    assert len(begun) == kill
    helpers.assert_same(begun + resumed, expected)


def test_checkpoints_of_one_and_the_other(paths: list[str], tmp_path: Path) -> None:
    """Without accel, the states of loaders must be taken out of a checkpoint (docs/resume.md); none need be in it."""
    place = tmp_path / "checkpoint"
    with accel.image_backend("cpu"):
        fitted(paths, place, kill=2)
    with pytest.raises(RuntimeError, match="0 stateful loaders, but found 1 states"):
        fitted(paths, place, resumes=True)
    checkpoint = torch.load(place, weights_only=True)
    del checkpoint["loops"]["fit_loop"]["state_dict"]["combined_loader"]
    torch.save(checkpoint, place)
    assert len(fitted(paths, place, resumes=True)) == 10
    fitted(paths, place, kill=2)
    with accel.image_backend("cpu"):
        assert len(fitted(paths, place, resumes=True)) == 10
