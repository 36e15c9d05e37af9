"""Lightning: a module and a Trainer. The backend is set before the Trainer makes its loaders.

python train_lightning.py
"""

import tempfile
from pathlib import Path

import lightning
import torch
from PIL import Image
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader
from torchvision import transforms as T
from torchvision.datasets import ImageFolder

import accel


def write_photos(folder: Path) -> None:
    """Write 32 JPEG files of two classes: coloured gradients."""
    for number in range(32):
        file = folder / ("cats", "dogs")[number % 2] / f"{number:02}.jpg"
        file.parent.mkdir(exist_ok=True)
        channels = [Image.radial_gradient("L").rotate(10 * number + angle) for angle in (0, 90, 180)]
        Image.merge("RGB", channels).resize((160 + number, 120)).save(file)


class Classifier(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 64 * 64, 2))

    def training_step(self, batch: list[torch.Tensor], number: int) -> torch.Tensor:
        images, labels = batch
        loss = cross_entropy(self.model(images), labels)
        self.log("loss", loss)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.01)


def main() -> None:
    accel.set_image_backend("cpu")
    lightning.seed_everything(0, workers=True, verbose=False)
    with tempfile.TemporaryDirectory() as folder:
        write_photos(Path(folder))
        dataset = ImageFolder(folder, T.Compose([T.RandomResizedCrop(64), T.RandomHorizontalFlip(), T.ToTensor()]))
        loader = DataLoader(dataset, batch_size=8, shuffle=True, num_workers=2)
        trainer = lightning.Trainer(max_epochs=1, accelerator="cpu", default_root_dir=folder, log_every_n_steps=1)
        trainer.fit(Classifier(), loader)
        print(f"loss {trainer.callback_metrics['loss']:.6f}")
    print(accel.summary())


if __name__ == "__main__":
    main()
