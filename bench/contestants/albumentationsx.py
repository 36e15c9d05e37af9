"""AlbumentationsX: ``A.Compose`` on arrays that OpenCV reads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bench.contestants.contestant import InLoader
from bench.contestants.opencv import OpenCV
from bench.job import Batch
from bench.pipelines import Draw, Pipeline


class AlbumentationsX(OpenCV):
    key = "albumentationsx"
    title = "AlbumentationsX"
    modules = ("albumentations", "cv2")
    pipelines = frozenset({"train", "eval", "cifar", "jitter"})
    own_draws = frozenset({"jitter"})
    settings = "cv2.imread, A.Compose(A.RandomResizedCrop, ..., A.Normalize, A.ToTensorV2), linear: no antialiasing"

    def one(self, pipeline: Pipeline) -> Callable[[Any, Draw], Any]:
        import albumentations as A
        import cv2
        from albumentations.core.transform_params import SampledParams

        drawn = [Draw()]  # the image's, for the classes below, which take it in place of numbers of their own

        class Given:
            """A crop whose box is given. (Fewer numbers are drawn, which is to its advantage.)"""

            def sample_parameters(self, params: Any, data: Any, targets: Any, sampling: Any) -> Any:
                top, left, height, width = drawn[0].box or (0, 0, 0, 0)
                box = {"crop_coords": (left, top, left + width, top + height)}
                return SampledParams(box | extra)

        class ResizedCrop(Given, A.RandomResizedCrop):  # type: ignore[misc]
            pass

        class Crop(Given, A.RandomCrop):  # type: ignore[misc]
            pass

        extra = {"pad_params": None} if pipeline.name == "cifar" else {}
        geometry: dict[str, Callable[[], list[Any]]] = {
            "train": lambda: [ResizedCrop((224, 224), p=1)],
            "eval": lambda: [A.SmallestMaxSize(256), A.CenterCrop(224, 224)],
            "cifar": lambda: [A.Pad(pipeline.pad), Crop(32, 32)],
            "jitter": lambda: [ResizedCrop((224, 224), p=1), A.ColorJitter(p=1, **_JITTER)],
        }
        transforms = [
            A.Compose(
                [
                    *geometry[pipeline.name](),
                    *([A.HorizontalFlip(p=1)] if flip else []),
                    A.Normalize(pipeline.mean, pipeline.std),
                    A.ToTensorV2(),
                ],
                telemetry=False,
            )
            for flip in (False, True)
        ]

        def one(image: Any, draw: Draw) -> Any:
            drawn[0] = draw
            if pipeline.source == "files":
                image = cv2.imread(image, cv2.IMREAD_COLOR_RGB | cv2.IMREAD_IGNORE_ORIENTATION)
            return transforms[draw.flip](image=image)["image"]

        return one

    def collate(self, pipeline: Pipeline) -> Callable[[list[Any]], Batch]:
        return InLoader.collate(self, pipeline)


_JITTER: dict[str, tuple[float, float]] = {
    "brightness_range": (0.6, 1.4),
    "contrast_range": (0.6, 1.4),
    "saturation_range": (0.6, 1.4),
    "hue_range": (-0.1, 0.1),
}
