"""The option ``cache``: sizes and folders, and what is neither."""

import os

import pytest

from accel.recipes.options import Options


@pytest.mark.parametrize(
    ("text", "size", "folder"),
    [
        ("64GB", 64 * 10**9, None),
        ("500 MiB", 500 << 20, None),
        ("1.5tb", 15 * 10**11, None),
        ("/nvme/accel:400GB", 400 * 10**9, "/nvme/accel"),
        ("/a:b/c:3 KiB", 3072, "/a:b/c"),
        ("~/kept:1kB", 1000, os.path.expanduser("~/kept")),
        ("kept:1kB", 1000, os.path.abspath("kept")),
    ],
)
def test_sizes_and_folders(text: str, size: int, folder: str | None) -> None:
    options = Options(cache=text)
    assert options.cache_size is not None
    assert options.cache_size[:2] == (size, folder)
    assert Options(cache=options.cache).cache_size == options.cache_size


def test_no_cache_that_outlives_the_run() -> None:
    assert Options().cache_size is None
    assert Options(cache=None).cache_size is None


UNITS = "a number above 0 and a unit, kB, MB, GB, TB, KiB, MiB, GiB or TiB"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "got ''"),
        ("64", "a size needs a unit, as in '64GB'"),
        ("/a:1", "a size needs a unit, as in '/a:1GB'"),
        ("/a", "a folder needs a size, as in '/a:64GB'"),
        ("/a:", "a folder needs a size, as in '/a:64GB'"),
        ("/a:/b", "a folder needs a size, as in '/a:/b:64GB'"),
        ("64G", "did you mean '64GB'?"),
        ("1.5ti", "did you mean '1.5TiB'?"),
        ("/a:10 k", "did you mean '/a:10 kB'?"),
        ("/a:much", "'much' is no size, as '64GB' is"),
        ("/a:1e3GB", f"'1e3GB' is no size: {UNITS}"),
        ("1PB", f"'1PB' is no size: {UNITS}"),
        ("64B", f"'64B' is no size: {UNITS}"),
        ("/a:-1GB", f"'-1GB' is no size: {UNITS}"),
        ("0GB", "a size is more than nothing"),
        ("/a:0GB", "a size is more than nothing"),
        (":1GB", "no folder is named before the colon"),
        ("/a\0b:1GB", "a folder's name has no NUL"),
        ("/a:1GB\0", "a folder's name has no NUL"),
        ("GB", ""),
        ("-1GB", f"'-1GB' is no size: {UNITS}"),
    ],
)
def test_what_is_no_size_is_refused(text: str, said: str) -> None:
    with pytest.raises(ValueError, match="cache must be 'auto', None, a size or a folder with a size") as error:
        Options(cache=text)
    assert str(error.value).endswith(said)
