"""fastai: its images are Pillow's with another class, which it gives back to whatever comes out of a transform.

It adds methods and properties to Pillow's class when it is imported; so that happens in a process of its own.
"""

from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support import helpers

pytestmark = pytest.mark.skipif(find_spec("fastai") is None, reason="could not import 'fastai'")

CODE = """if True:
    import sys, warnings
    warnings.simplefilter("ignore")  # fastai, and what it imports, use what is deprecated
    import accel, torch
    from fastai.vision.all import (
        ImageDataLoaders, PILImage, Pipeline, RandomCrop, RandomResizedCrop, Resize, ResizeMethod, ToTensor,
        aug_transforms, get_image_files, set_seed,
    )

    folder, backend, workers = sys.argv[1], sys.argv[2], int(sys.argv[3])
    crops = [RandomCrop(40), RandomResizedCrop(32, min_scale=0.5)]
    resizes = [Resize(48), Resize(48, method=ResizeMethod.Pad, pad_mode="zeros"), Resize(32, method="squish"), *crops]

    def batches(resize):
        set_seed(3)
        loaders = ImageDataLoaders.from_folder(
            folder, valid_pct=0.25, seed=1, item_tfms=resize, batch_tfms=aug_transforms(), bs=4, num_workers=workers
        )
        return [part for each in (loaders.train, loaders.valid) for batch in each for part in batch]

    def items():
        set_seed(3)
        for file in sorted(get_image_files(folder)):
            image = PILImage.create(file)
            for resize in resizes:
                for split in (0, 1):
                    resized = resize(image, split_idx=split)
                    yield type(resized).__name__, ToTensor()(resized)

    def under(name):
        accel.set_image_backend(name)
        return [each for resize in resizes[: 2 if workers else None] for each in batches(resize)], list(items())

    (expected, expected_items), (found, found_items) = under("torchvision"), under(backend)
    assert len(found) == len(expected)
    for one, other in zip(found, expected):
        assert type(one) is type(other) and one.dtype == other.dtype and torch.equal(one, other), (one, other)
    for (kind, one), (plain_kind, other) in zip(found_items, expected_items, strict=True):
        assert kind == plain_kind == "PILImage" and type(one) is type(other) and torch.equal(one, other)
    print(len(found))
"""


@pytest.mark.parametrize("workers", [0, 2])
def test_its_documented_loaders(image_folder: Path, workers: int) -> None:
    assert int(helpers.python(CODE, str(image_folder), "cpu", str(workers), timeout=600)) > 10
