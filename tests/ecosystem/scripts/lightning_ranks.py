"""Lightning's training of two ranks, with accel and without it; each rank writes what it saw into a file.

script.py FOLDER STRATEGY OUT
"""

import json
import sys
from pathlib import Path
from typing import Any

import lightning
import torch
from torch.utils.data import DataLoader
from torchvision import transforms as T
from torchvision.datasets import ImageFolder

import accel

QUIET = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)


class Module(lightning.LightningModule):  # type: ignore[misc]
    def __init__(self, out: Path) -> None:
        super().__init__()
        self.layer, self.losses, self.out = torch.nn.Linear(3 * 32 * 32, 2), list[float](), out

    def training_step(self, batch: Any, number: int) -> torch.Tensor:
        images, labels = batch
        loss = torch.nn.functional.cross_entropy(self.layer(images.flatten(1)), labels)
        self.losses.append(loss.item())
        return loss

    def on_train_end(self) -> None:
        seen = {"losses": self.losses, "indexed": accel.stats()["indexed"]}
        (self.out / f"{accel.get_image_backend()} {self.global_rank}").write_text(json.dumps(seen))

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), 0.01)


def main() -> None:
    root, strategy, out = sys.argv[1:]
    data = ImageFolder(root, T.Compose([T.RandomCrop(32), T.RandomHorizontalFlip(), T.ToTensor()]))
    for backend in ("cpu", "torchvision"):
        accel.set_image_backend(backend)
        lightning.seed_everything(1, workers=True, verbose=False)
        trainer = lightning.Trainer(max_epochs=2, accelerator="cpu", devices=2, strategy=strategy, **QUIET)
        trainer.fit(Module(Path(out)), DataLoader(data, 8, shuffle=True, num_workers=1))


if __name__ == "__main__":
    main()
