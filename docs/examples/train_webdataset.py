"""WebDataset: shards of JPEG files, decoded, augmented and batched as its documentation does.

python train_webdataset.py
"""

import io
import tempfile
from pathlib import Path
from typing import Any

import torch
import webdataset as wds
from PIL import Image
from torchvision.transforms import v2

import accel

TRANSFORM = v2.Compose([v2.RandomResizedCrop(64), v2.RandomHorizontalFlip()])


def write_shards(folder: Path) -> str:
    """Write 32 JPEG files, coloured gradients, into two shards, and return their names."""
    with wds.ShardWriter(str(folder / "%d.tar"), maxcount=16, verbose=0) as writer:
        for number in range(32):
            channels = [Image.radial_gradient("L").rotate(10 * number + angle) for angle in (0, 90, 180)]
            file = io.BytesIO()
            Image.merge("RGB", channels).resize((160 + number, 120)).save(file, "JPEG")
            writer.write({"__key__": f"{number:02}", "jpg": file.getvalue(), "cls": number % 2})
    return str(folder / "{0..1}.tar")


def identity(label: Any) -> Any:
    return label


def main() -> None:
    accel.set_image_backend("cpu")
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        dataset = (
            wds.WebDataset(write_shards(Path(folder)), shardshuffle=2, seed=0)
            .shuffle(100, seed=0)
            .decode("torchrgb")
            .to_tuple("jpg", "cls")
            .map_tuple(TRANSFORM, identity)
            .batched(8)
        )
        model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 64 * 64, 2))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for images, labels in wds.WebLoader(dataset, batch_size=None, num_workers=2):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
        print(f"loss {loss.item():.6f}")
    print(accel.summary())


if __name__ == "__main__":
    main()
