"""LitData: JPEG files optimised into chunks, which keep the files' bytes, and streamed to a training.

python train_litdata.py
"""

import tempfile
from pathlib import Path
from typing import Any

import litdata
import torch
from PIL import Image
from torchvision.transforms import v2

import accel

TRANSFORM = v2.Compose([v2.RandomResizedCrop(64), v2.RandomHorizontalFlip(), v2.ToDtype(torch.float32, scale=True)])


def write_photos(folder: Path) -> list[str]:
    """Write 32 JPEG files, coloured gradients, and return their paths."""
    files = [folder / f"{number:02}.jpg" for number in range(32)]
    for number, file in enumerate(files):
        channels = [Image.radial_gradient("L").rotate(10 * number + angle) for angle in (0, 90, 180)]
        Image.merge("RGB", channels).resize((160 + number, 120)).save(file)
    return [*map(str, files)]


def sample(path: str) -> dict[str, Any]:
    return {"image": Image.open(path), "label": int(Path(path).stem) % 2}  # of a file LitData keeps the bytes


class Photos(litdata.StreamingDataset):
    def __getitem__(self, index: Any) -> tuple[torch.Tensor, int]:
        row = super().__getitem__(index)  # its image is a uint8 tensor
        return TRANSFORM(row["image"]), row["label"]


def main() -> None:
    accel.set_image_backend("cpu")
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        chunks = str(Path(folder) / "chunks")
        files = write_photos(Path(folder))
        litdata.optimize(
            sample, inputs=files, output_dir=chunks, chunk_bytes="64KB", num_workers=1, start_method="fork"
        )
        model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 64 * 64, 2))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for images, labels in litdata.StreamingDataLoader(Photos(chunks, shuffle=True), batch_size=8, num_workers=2):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
        print(f"loss {loss.item():.6f}")
    print(accel.summary())


if __name__ == "__main__":
    main()
