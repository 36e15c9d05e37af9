"""timm: its dataset, loader and loss, as its training script uses them.

python train_timm.py
"""

import tempfile
from pathlib import Path

import timm
import torch
from PIL import Image
from timm.data import create_dataset, create_loader
from timm.loss import LabelSmoothingCrossEntropy
from timm.utils import random_seed

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
    random_seed(0)
    device = torch.device("cpu")
    with tempfile.TemporaryDirectory() as folder:
        write_photos(Path(folder))
        loader = create_loader(
            create_dataset("", folder),
            input_size=(3, 64, 64),
            batch_size=8,
            is_training=True,
            num_workers=2,
            re_prob=0.25,
            device=device,
        )
        model = timm.create_model("test_vit", num_classes=2, img_size=64)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for images, labels in loader:
            loss = LabelSmoothingCrossEntropy()(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"loss {loss.item():.6f}")
    print(accel.summary())


if __name__ == "__main__":
    main()
