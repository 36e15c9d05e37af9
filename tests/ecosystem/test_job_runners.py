"""joblib and loky, Dask, Spark: processes that run jobs of the script's, which has accel's two lines in front."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import sys
runner, *paths = sys.argv[1:]

def job(path):
    import accel
    from PIL import Image
    from torchvision import transforms as T
    image = T.Compose([T.Resize((20, 20)), T.ToTensor()])(Image.open(path))
    return type(image).__module__.split(".")[0], accel.get_image_backend(), float(image.sum())

def run():
    if runner == "joblib":
        from joblib import Parallel, delayed
        return Parallel(n_jobs=2)(delayed(job)(path) for path in paths)
    if runner == "loky":
        from loky import get_reusable_executor
        return list(get_reusable_executor(1).map(job, paths))
    import dask.bag
    return dask.bag.from_sequence(paths, npartitions=1).map(job).compute(scheduler="processes", num_workers=1)

if __name__ == "__main__":
    import accel
    accel.set_image_backend("cpu")
    found = run()
    assert [each[:2] for each in found] == [("accel", "cpu")] * len(paths), found
    stats = accel.stats()
    assert stats["images"] == sum(stats["ways"].values()) == len(paths), stats
    with accel.image_backend("torchvision"):
        assert [job(path)[2] for path in paths] == [value for *_, value in found]
"""


def ended(*words: str) -> str:
    """What a Python with these arguments writes to standard error; it must not fail."""
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.mark.parametrize("runner", ["joblib", "loky", "dask"])
def test_workers_get_the_switch(runner: str, paths: list[str], tmp_path: Path) -> None:
    pytest.importorskip(runner)
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    assert ended(str(script), runner, *paths[:4]) == ""


@pytest.mark.parametrize("package", ["loky", "joblib.externals.loky"])
def test_workers_that_were_there_before(package: str) -> None:
    pytest.importorskip(package)
    code = f"""
from multiprocessing import process
import accel
from {package} import get_reusable_executor
executor = get_reusable_executor(1)
assert executor.submit(abs, -3).result() == 3
accel.set_image_backend("cpu")
accel.set_image_backend("torchvision")
assert "accel" not in process.current_process()._config
executor.shutdown()
accel.set_image_backend("cpu")
"""
    assert ended("-c", code).count("had started workers before the image backend was set") == 1


DASK = """
import sys
before = sys.argv[1] == "before"
if before:
    from distributed import Client
import accel

def module():
    from PIL import Image
    from torchvision.transforms import functional as F
    return type(F.to_tensor(Image.new("RGB", (9, 9)))).__module__.split(".")[0]

def given(client):
    return client.submit(module, pure=False).result()

if __name__ == "__main__":
    from distributed import Client, LocalCluster
    quiet = dict(threads_per_worker=1, dashboard_address=None, silence_logs=50)
    with LocalCluster(n_workers=1, **quiet) as cluster:
        accel.set_image_backend("cpu")
        with Client(cluster) as client:
            assert given(client) == "torch"
        with Client(cluster.scheduler_address) as client:
            assert given(client) == given(client) == "torch"
            client.register_worker_callbacks(setup=lambda: accel.set_image_backend("cpu"))
            assert given(client) == "accel"
    with Client(n_workers=1, **quiet) as client:
        assert given(client) == "accel"
    accel.set_image_backend("torchvision")
    assert not Client._graph_to_futures.__kwdefaults__
"""


@pytest.mark.parametrize("imported", ["before", "after"])
def test_dask_says_which_workers_are_not_reached(imported: str, tmp_path: Path) -> None:
    """Those that were there before the switch, and those that others have started."""
    pytest.importorskip("distributed")
    (tmp_path / "script.py").write_text(DASK)
    said = ended(str(tmp_path / "script.py"), imported)
    assert said.count("Dask had started workers before the image backend was set") == 1, said
    assert said.count("a cluster's (Dask) workers run plain torchvision") == 1, said


@pytest.mark.parametrize("imported", ["before", "after"])
def test_spark_says_that_its_workers_are_not_reached(imported: str) -> None:
    pytest.importorskip("pyspark")
    code = """
import sys
order = sys.argv[1]
if order == "before":
    import pyspark.serializers
import accel
accel.set_image_backend("cpu")
from pyspark.serializers import CloudPickleSerializer
for _ in range(3):
    assert CloudPickleSerializer().loads(CloudPickleSerializer().dumps(len)) is len
accel.set_image_backend("torchvision")
assert not CloudPickleSerializer.dumps.__kwdefaults__
"""
    said = ended("-c", code, imported)
    assert said.count("Spark's workers run plain torchvision") == 1, said
