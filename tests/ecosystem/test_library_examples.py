"""docs/examples of other libraries: each runs as a user runs it, the fast way, and prints what torchvision would."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support.processes import ROOT, linux

pytestmark = linux
EXAMPLES = ROOT / "docs" / "examples"
SWITCH = 'accel.set_image_backend("cpu")'
IMAGES = {
    "notebook": 32,
    "server_fastapi": 8,
    "train_accelerate": 32,
    "train_fastai": 32,
    "train_huggingface": 64,
    "train_lightning": 32,
    "train_litdata": 32,
    "train_ray": 32,
    "train_timm": 32,
    "train_webdataset": 32,
}
"""How many images an example computes."""
LIBRARIES = {name: (name.removeprefix("train_"),) for name in IMAGES if name.startswith("train_")}
LIBRARIES |= {
    "notebook": (),
    "server_fastapi": ("fastapi", "httpx"),
    "train_huggingface": ("datasets", "transformers"),
}
CELLS = """if True:
    import json, sys
    namespace = {"__name__": "__main__"}
    for cell in json.load(open(sys.argv[1]))["cells"]:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), namespace)
"""


def printed(file: Path, folder: Path) -> list[str]:
    """What an example prints, or a notebook's cells, one after another: the lines of values and of the summary."""
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": path, "HF_HUB_OFFLINE": "1", "RAY_USAGE_STATS_ENABLED": "0"}
    begin = ["-c", CELLS] if file.suffix == ".ipynb" else []
    done = subprocess.run(
        [sys.executable, *begin, str(file)],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [line for line in done.stdout.splitlines() if line.startswith(("loss", "[0.", "400", "accel is"))]


@pytest.mark.parametrize("name", IMAGES)
def test_an_example(name: str, tmp_path: Path) -> None:
    for library in LIBRARIES[name]:
        if find_spec(library) is None:  # not imported here: fastai changes Pillow's class
            pytest.skip(f"could not import {library!r}")
    file = next(EXAMPLES.glob(f"{name}.*"))
    *values, summary = printed(file, tmp_path)
    assert f"(backend 'cpu'): {IMAGES[name]} images computed by this process and its workers, all the fast" in summary

    plain = tmp_path / file.name
    text = file.read_text()
    switch, off = SWITCH, SWITCH.replace("cpu", "torchvision")
    if file.suffix == ".ipynb":
        switch, off = json.dumps(switch), json.dumps(off)
    assert text.count(switch) == 1
    plain.write_text(text.replace(switch, off))
    *expected, summary = printed(plain, tmp_path)
    assert summary.startswith("accel is off: ")
    assert ("no image was computed" in summary) == (
        name != "train_ray"
    )  # accel computes what was recorded, in any case
    assert len(values) == (9 if name.startswith("server") else 1)
    assert values == expected


def test_a_notebook_is_short_and_has_no_output() -> None:
    for file in EXAMPLES.glob("*.ipynb"):
        cells = [cell for cell in json.loads(file.read_text())["cells"] if cell["cell_type"] == "code"]
        assert sum(len(cell["source"]) for cell in cells) <= 60
        assert [cell for cell in cells if cell["outputs"] or cell["execution_count"] is not None] == []


def test_each_is_linked_from_a_page() -> None:
    pages = "".join(page.read_text() for page in (ROOT / "docs").glob("*.md"))
    assert [file.name for file in EXAMPLES.glob("*.*") if f"(examples/{file.name})" not in pages] == []
