"""Processes that multiprocessing starts anew take the switch along; those that have no use for it import nothing."""

import multiprocessing.spawn
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

import accel
from accel.hooks import patch
from accel.system.native import units
from tests.support import helpers, inside

SCRIPT = """
import multiprocessing
import sys
from concurrent.futures import ProcessPoolExecutor

def known():
    return sorted(name for name in ("accel", "torch", "torchvision") if name in sys.modules)

def opened(path):
    from torchvision import transforms as T  # accel comes with it
    from PIL import Image
    image = T.ToTensor()(Image.open(path).convert("RGB").resize((20, 10)))
    return image, type(Image.open(path)).__module__

def chosen(_):
    import accel
    before = accel.get_image_backend()
    accel.set_image_backend("torchvision")
    return before, accel.get_image_backend()

if __name__ == "__main__":
    import accel
    method, *paths = sys.argv[1:]
    context = multiprocessing.get_context(method)
    with accel.image_backend("cpu", decode="pillow"):
        with ProcessPoolExecutor(1, mp_context=context) as pool:
            assert pool.submit(known).result() == []
            assert pool.submit(chosen, 0).result() == ("cpu", "torchvision")
        before = accel.stats()["images"]
        with context.Pool(1) as pool:
            images = pool.map(opened, paths)
        assert {module.split(".")[0] for _, module in images} == {"accel"}
        assert {type(image).__name__ for image, _ in images} == {"Tensor"}, "computed where it was made"
        assert accel.stats()["images"] - before == len(paths)
    with context.Pool(1) as pool:
        plain = pool.map(opened, paths)
        assert pool.apply(known) == ["torch", "torchvision"]
    assert all(image.equal(other) for (image, _), (other, _) in zip(images, plain, strict=True))
    print("done")
"""


@pytest.mark.sweep
@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_pools(paths: list[str], tmp_path: Path, method: str) -> None:
    script = tmp_path / "pools.py"
    script.write_text(SCRIPT)
    assert helpers.script(script, method, *paths[:3]).split() == ["done"]


def test_what_processes_are_prepared_by_is_put_back() -> None:
    original = multiprocessing.spawn.get_preparation_data
    with accel.image_backend("cpu"):
        assert "accel" in multiprocessing.spawn.get_preparation_data("name")
        with accel.image_backend("torchvision"):
            assert "accel" not in multiprocessing.spawn.get_preparation_data("name")
    assert multiprocessing.spawn.get_preparation_data is original


def test_an_environment_variable_is_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ACCEL_TESTED", raising=False)
    undo = patch.item(os.environ, "ACCEL_TESTED", "ours")
    assert os.environ["ACCEL_TESTED"] == "ours"
    undo()
    assert "ACCEL_TESTED" not in os.environ
    undo = patch.item(os.environ, "ACCEL_TESTED", "ours")
    os.environ["ACCEL_TESTED"] = "somebody's"
    undo()
    assert os.environ["ACCEL_TESTED"] == "somebody's"


def test_the_switch_where_accel_is_imported_already(tmp_path: Path) -> None:
    """As in a process that was forked from one that had imported it."""
    with accel.image_backend("cpu"):
        (tmp_path / "data").write_bytes(pickle.dumps(multiprocessing.spawn.get_preparation_data("name")["accel"]))
    code = f"""
import accel, pickle
pickle.load(open({str(tmp_path / "data")!r}, "rb"))
assert accel.get_image_backend() == "cpu"
"""
    helpers.python(code)


# -- what the environment forbids ------------------------------------------------------------------------------------


NO_JIT = """
import io, torch
from PIL import Image
from torchvision.transforms import functional as F
stream = io.BytesIO(); Image.linear_gradient("L").convert("RGB").save(stream, "JPEG")
expected = F.to_tensor(F.resize(Image.open(stream), [100, 100]))
import accel
accel.set_image_backend("cpu")
found = F.to_tensor(F.resize(Image.open(stream), [100, 100]))
assert torch.equal(found, expected)
assert not accel.stats()["fallbacks"]
import numba
print(type(numba.njit(lambda x: x)).__name__)
"""


@pytest.mark.sweep
def test_numba_is_told_not_to_compile(tmp_path: Path) -> None:
    """Which is right for a user's functions; accel's cannot do without."""
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1", "ACCEL_CACHE_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", NO_JIT], capture_output=True, text=True, env=environment, timeout=600)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "function\n"
    (told,) = done.stderr.splitlines()
    assert told.startswith("accel compiles its kernels")


def test_nothing_can_compile(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "1")
    monkeypatch.setenv("ACCEL_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(units, "get_executable", lambda: None)
    inside.forget_units(monkeypatch)
    unit = units.Unit("markers", "codec/jpeg/markers.py", seconds=1)
    unit.function("codec.jpeg.markers", "first_marker", "u1[1] int")
    with pytest.raises(RuntimeError, match="NUMBA_DISABLE_JIT"):
        units.ready([unit])
