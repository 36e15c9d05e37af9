"""Lightning: its Trainer makes the loaders anew, with samplers and worker_init_fn of its own."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

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
