"""fastai: a Learner on DataLoaders of torch. Their images stay lazy; fastai's own loaders decode each as they open it.

python train_fastai.py
"""

import tempfile
from pathlib import Path

import torch
from fastai.vision.all import DataLoaders, Learner, set_seed
from PIL import Image
from torch.utils.data import DataLoader, random_split
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
    set_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        write_photos(Path(folder))
        dataset = ImageFolder(folder, T.Compose([T.RandomResizedCrop(64), T.RandomHorizontalFlip(), T.ToTensor()]))
        training, validation = random_split(dataset, [24, 8])
        loaders = DataLoaders(
            DataLoader(training, batch_size=8, shuffle=True, num_workers=2), DataLoader(validation, batch_size=8)
        )
        model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 64 * 64, 2))
        learner = Learner(loaders, model, loss_func=torch.nn.functional.cross_entropy)
        with learner.no_bar(), learner.no_logging():
            learner.fit(1, 0.01)
        print(f"loss {learner.recorder.losses[-1].item():.6f}")
    print(accel.summary())


if __name__ == "__main__":
    main()
