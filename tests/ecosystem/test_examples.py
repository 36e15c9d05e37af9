"""docs/examples: each is at most 60 lines, runs as it says, and has torchvision's values by accel."""

import ast
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

import pytest
import torch
from PIL import Image
from torchvision import transforms as T

from tests.support import helpers
from tests.support.processes import ROOT, linux

pytestmark = linux
EXAMPLES = ROOT / "docs" / "examples"
STEPS = T.Compose([T.Resize(256), T.CenterCrop(224), T.ToTensor()])
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}


def test_they_are_short() -> None:
    assert [file for file in EXAMPLES.glob("*.py") if len(file.read_text().splitlines()) > 60] == []


def expected(folder: Path) -> list[str]:
    """What the examples print of a folder with one batch of files."""
    images = torch.stack([STEPS(helpers.open_rgb(str(file))) for file in sorted(folder.rglob("*.jpg"))]).double()
    mean, square = images.mean((2, 3)).sum(0) / len(images), (images**2).mean((2, 3)).sum(0) / len(images)
    return ["cpu", str(mean.tolist()), str((square - mean**2).sqrt().tolist())]


@pytest.mark.parametrize(("example", "library"), [("joblib", "joblib"), ("dask", "distributed"), ("spark", "pyspark")])
def test_statistics(example: str, library: str, image_folder: Path, tmp_path: Path) -> None:
    pytest.importorskip(library)
    command = [sys.executable, str(EXAMPLES / f"statistics_{example}.py"), str(image_folder)]
    done = subprocess.run(
        command, env=ENVIRONMENT, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "run plain torchvision" not in done.stderr
    backend, *found = done.stdout.splitlines()
    plain = expected(image_folder)
    assert backend == plain[0]
    for line, of_torchvision in zip(found, plain[1:], strict=True):  # threads of torch add up in another order
        torch.testing.assert_close(torch.tensor(ast.literal_eval(line)), torch.tensor(ast.literal_eval(of_torchvision)))


@pytest.fixture(params=["--preload", "--reuse-port"])
def server(request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of gunicorn with two workers, forked with the switch or not."""
    pytest.importorskip("gunicorn")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    words = [request.param, "--workers", "2", "--bind", address, "--chdir", str(EXAMPLES), "server_gunicorn:app"]
    process = subprocess.Popen([sys.executable, "-m", "gunicorn", *words], env=ENVIRONMENT, stderr=subprocess.DEVNULL)
    until = time.monotonic() + 60
    try:
        while time.monotonic() < until and process.poll() is None:
            try:
                urlopen(f"http://{address}", b"no image").close()
            except HTTPError:
                break
            except URLError:
                time.sleep(0.1)
        yield f"http://{address}"
    finally:
        process.terminate()
        process.wait(60)


def test_a_server(server: str, paths: list[str]) -> None:
    for path in paths[:4]:
        answer: Any = json.loads(urlopen(server, Path(path).read_bytes()).read())
        assert answer["backend"] == "cpu"
        assert answer["colour"] == STEPS(Image.open(path).convert("RGB")).mean((1, 2)).tolist()
    with pytest.raises(HTTPError, match="400"):
        urlopen(server, b"\xff\xd8")
