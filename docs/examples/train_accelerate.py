"""Accelerate: its training loop, on the CPU.

python train_accelerate.py          accelerate launch train_accelerate.py
"""

import tempfile
from pathlib import Path

import torch
from accelerate import Accelerator
from PIL import Image
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


def main() -> None:
    accel.set_image_backend("cpu")
    torch.manual_seed(0)
    accelerator = Accelerator(cpu=True)
    with tempfile.TemporaryDirectory() as folder:
        write_photos(Path(folder))
        dataset = ImageFolder(folder, T.Compose([T.RandomResizedCrop(64), T.RandomHorizontalFlip(), T.ToTensor()]))
        loader = DataLoader(dataset, batch_size=8, shuffle=True, num_workers=2)
        model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 64 * 64, 2))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
        for images, labels in loader:
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(images), labels)
            accelerator.backward(loss)
            optimizer.step()
        accelerator.print(f"loss {loss.item():.6f}")
    accelerator.print(accel.summary())


if __name__ == "__main__":
    main()
