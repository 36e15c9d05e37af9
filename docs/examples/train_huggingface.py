"""Hugging Face: a dataset, an image processor for evaluation, torchvision's transforms for training, and a model.

python train_huggingface.py
"""

import tempfile
from pathlib import Path
from typing import Any

import torch
from datasets import load_dataset
from PIL import Image
from torch.utils.data import DataLoader
from torchvision import transforms as T
from transformers import ViTConfig, ViTForImageClassification, ViTImageProcessor

import accel

PROCESSOR = ViTImageProcessor(size={"height": 64, "width": 64})  # or .from_pretrained("google/vit-base-patch16-224")
NORMALIZE = T.Normalize(PROCESSOR.image_mean, PROCESSOR.image_std)
TRAIN = T.Compose([T.RandomResizedCrop(64), T.RandomHorizontalFlip(), T.ToTensor(), NORMALIZE])


def write_photos(folder: Path) -> None:
    """Write 32 JPEG files of two classes: coloured gradients."""
    for number in range(32):
        file = folder / ("cats", "dogs")[number % 2] / f"{number:02}.jpg"
        file.parent.mkdir(exist_ok=True)
        channels = [Image.radial_gradient("L").rotate(10 * number + angle) for angle in (0, 90, 180)]
        Image.merge("RGB", channels).resize((160 + number, 120)).save(file)


def augmented(rows: dict[str, Any]) -> dict[str, Any]:
    return {"pixel_values": [TRAIN(image.convert("RGB")) for image in rows["image"]], "labels": rows["label"]}


def processed(rows: dict[str, Any]) -> dict[str, Any]:
    return {**PROCESSOR(rows["image"], return_tensors="pt"), "labels": rows["label"]}


def main() -> None:
    accel.set_image_backend("cpu")
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        write_photos(Path(folder))
        dataset = load_dataset("imagefolder", data_dir=folder, cache_dir=folder, split="train")
        model = ViTForImageClassification(ViTConfig(image_size=64, num_hidden_layers=1, num_labels=2))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for batch in DataLoader(dataset.with_transform(augmented), batch_size=8, shuffle=True, num_workers=2):
            optimizer.zero_grad()
            model(**batch).loss.backward()
            optimizer.step()
        with torch.no_grad():
            losses = [model(**batch).loss for batch in DataLoader(dataset.with_transform(processed), batch_size=8)]
        print(f"loss {torch.stack(losses).mean().item():.6f}")
    print(accel.summary())


if __name__ == "__main__":
    main()
