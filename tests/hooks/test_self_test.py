"""Libraries that are newer than was tested: ops are tried once, and what differs is left to torchvision."""

import io
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import accel
from accel import testing
from accel.ops import LEFT, OPS
from accel.system import private_names
from accel.system.native import object_cache
from tests.support import helpers

CASES = list(testing.cases(((64, 48),)))


def test_an_op_that_is_left_has_torchvisions_results(monkeypatch: pytest.MonkeyPatch) -> None:
    accel.set_image_backend("cpu")
    for case in CASES:
        stream = testing.picture(case.size, case.mode)
        with accel.image_backend("torchvision"):
            expected = testing.run_op(OPS[case.op], case.params, Image.open(io.BytesIO(stream)))
        with monkeypatch.context() as patch:
            patch.setitem(LEFT, case.op, "for a test")
            found = testing.run_op(OPS[case.op], case.params, Image.open(io.BytesIO(stream)))
            recorded = accel.explain(found).partition("recorded: ")[2].partition("\n")[0]
            assert case.op not in [step.partition("(")[0] for step in recorded.split(" -> ")], case
            helpers.assert_same(found, expected)


WRONG = """
import json, sys
from dataclasses import replace

import torch, torchvision
from PIL import Image
from torch.utils.data import DataLoader
from torchvision import transforms as T
from torchvision.datasets import ImageFolder
from torchvision.transforms import v2

folder, torchvision.__version__ = sys.argv[1:]
import accel
from accel import ops, testing
from accel.ops import OPS

OPS["hflip"] = replace(OPS["hflip"], lower=OPS["vflip"].lower)
if torchvision.__version__.startswith("9."):
    OPS["adjust_hue"] = replace(OPS["adjust_hue"], size=lambda size, params: 1 / 0)
OPS["normalize"] = replace(OPS["normalize"], apply=lambda values, mean, std: values * 2)
check, tried = testing.check, []

def watched(case, backend):
    tried.append(case.op)
    if torchvision.__version__ == "9.3" and case.op == "vflip":
        raise MemoryError
    check(case, backend)

testing.check = watched

VALUES = [T.ToTensor(), T.Normalize([0.5] * 3, [0.25] * 3)]
VALUES_2 = [v2.ToDtype(torch.float32, scale=True), v2.Normalize([0.5] * 3, [0.25] * 3)]
PIPELINES = [
    T.Compose([T.RandomResizedCrop(32), T.RandomHorizontalFlip(), *VALUES]),
    T.Compose([T.ColorJitter(hue=0.3), T.Resize((20, 30)), *VALUES]),
    v2.Compose([v2.ToImage(), v2.RandomHorizontalFlip(1.0), v2.Resize((20, 30)), *VALUES_2]),
    T.Compose([T.Lambda(lambda image: image.transpose(Image.Transpose.ROTATE_180)), T.Resize((20, 30)), *VALUES]),
    T.Compose([T.Resize((20, 30)), T.RandomVerticalFlip(), T.ToTensor()]),
]

def batches():
    torch.manual_seed(1)
    return [images for each in PIPELINES for images, _ in DataLoader(ImageFolder(folder, each), 4)]

expected = batches()
accel.set_image_backend("cpu")
counted = {name: number for name, number in accel.stats().items() if number and name != "fallbacks"}
found = [images.clone() for images in batches()]
image = Image.open(ImageFolder(folder).samples[0][0])
print(json.dumps({
    "same": all(map(torch.equal, found, expected)),
    "tried": sorted(set(tried)),
    "counted": counted,
    "fallbacks": [*accel.stats()["fallbacks"]],
    "explained": accel.explain(T.functional.to_tensor(image)),
    "left": ops.LEFT,
}))
"""


def with_wrong_ops(folder: Path, version: str) -> dict[str, Any]:
    return dict(json.loads(helpers.python(WRONG, str(folder), version)))


def test_a_newer_version_that_differs(image_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = shutil.copytree(object_cache.folder(), tmp_path / "cache")
    monkeypatch.setenv("ACCEL_CACHE_DIR", str(cache))
    wrong = {"adjust_hue", "hflip", "normalize"}
    version = "9.1.0.dev20270101"
    first = with_wrong_ops(image_folder, version)
    assert first["same"]
    assert first["left"].keys() == wrong | {"v1.hflip", "v2.horizontal_flip"}, "these record hflip"
    assert {case.op for case in CASES} <= {*first["tried"]}
    assert first["counted"] == {}, "the images of the test are nobody's"
    assert "ZeroDivisionError" in first["left"]["adjust_hue"]
    for name in wrong:
        assert f"{name} is left to torchvision: it differs in torchvision {version}" in first["fallbacks"]
        assert f"left to torchvision: {name} (" in first["explained"]
    again = with_wrong_ops(image_folder, version)
    assert (again["same"], again["tried"], again["left"]) == (True, [], first["left"])
    another = with_wrong_ops(image_folder, "9.2")
    assert another["tried"] == first["tried"]
    for file in cache.glob("self-test-*"):
        file.write_bytes(b"{}")
    assert with_wrong_ops(image_folder, version)["tried"] == first["tried"], "a damaged file is made again"


def test_what_fails_for_want_of_memory_is_tried_again(
    image_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ACCEL_CACHE_DIR", str(shutil.copytree(object_cache.folder(), tmp_path / "cache")))
    first, again = (with_wrong_ops(image_folder, "9.3") for _ in range(2))
    assert first["same"]
    assert "MemoryError" in first["left"]["vflip"]
    assert again["tried"] == first["tried"]


def test_nothing_is_tried_with_versions_that_were_tested(image_folder: Path) -> None:
    found = with_wrong_ops(image_folder, "0.26.1")
    assert (found["tried"], found["left"]) == ([], {})
    assert not found["same"], "the ops are wrong, and nobody looks"
    assert private_names.newer() == []


def test_what_is_newer(monkeypatch: pytest.MonkeyPatch) -> None:
    for version, expected in {"2.15.9": [], "2.16.0a0+git": ["torch 2.16.0a0+git"], "3.0": ["torch 3.0"]}.items():
        monkeypatch.setattr("torch.__version__", version)
        assert private_names.newer() == expected


@pytest.mark.parametrize("use", [accel.set_image_backend, lambda name: accel.image_backend(name).__enter__()])
def test_python_without_its_gil_is_refused(use: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys._is_gil_enabled", lambda: False, raising=False)
    with pytest.raises(accel.BackendUnavailable, match=r"runs without its GIL, which was not tested \(PYTHON_GIL=1"):
        use("cpu")
    assert accel.get_image_backend() == "torchvision"
    monkeypatch.setattr("sys._is_gil_enabled", lambda: True, raising=False)
    accel.set_image_backend("cpu")
