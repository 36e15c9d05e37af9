"""Compiled code comes from no folder that another user may write to, and is compiled elsewhere then."""

import logging
import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from accel.system import log, trust
from accel.system.native import object_cache
from accel.system.trust import Untrusted
from tests.support import inside
from tests.support.processes import in_child, linux

pytestmark = linux
OTHER = 4242

as_root = pytest.mark.skipif(os.name == "nt" or os.geteuid() != 0, reason="only root gives files to other users")


@pytest.fixture(autouse=True)
def _new() -> None:
    inside.forget_messages()
    object_cache._of_process.cache_clear()


@pytest.fixture
def chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that ACCEL_CACHE_DIR names, with code in it; temporary files are in another."""
    monkeypatch.setenv("ACCEL_CACHE_DIR", str(tmp_path / "above" / "chosen"))
    object_cache.keep("a", b"planted")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    (tmp_path / "temporary").chmod(0o1777)
    return tmp_path / "above" / "chosen"


@pytest.mark.parametrize("kind", ["missing", "file"])
def test_a_message_names_a_folder_that_cannot_be_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    place = tmp_path / kind
    if kind == "file":
        place.write_bytes(b"")
    monkeypatch.setenv("ACCEL_CACHE_DIR", str(place))
    assert object_cache.where() == str(place)


def built() -> bytes:
    return b"own"


def elsewhere() -> Path:
    return Path(tempfile.gettempdir()) / f"accel-{os.geteuid()}"


def by_a_group(folder: Path) -> None:
    os.chown(folder, -1, OTHER)
    folder.chmod(0o775)


def by_another(folder: Path) -> None:
    os.chown(folder, OTHER, -1)


def through_a_link(folder: Path) -> None:
    real = folder.rename(folder.parent.parent / "real")
    folder.symlink_to(real)
    os.lchown(folder, OTHER, -1)


def through_a_parent_of_a_link(folder: Path) -> None:
    """One that no parent of either end shows."""
    real = folder.rename(folder.parent.parent / "real")
    between = folder.parent.parent / "between"
    between.mkdir()
    between.chmod(0o777)
    (between / "link").symlink_to(Path("..") / real.name)
    folder.symlink_to(between / "link")


def by_a_list(folder: Path) -> None:
    """An access control list lets a user write, which the mode shows as the group's right."""
    entries = [(1, 7, -1), (2, 7, OTHER), (4, 5, -1), (16, 7, -1), (32, 5, -1)]
    content = b"".join(
        tag.to_bytes(2, "little") + mode.to_bytes(2, "little") + (who & 0xFFFFFFFF).to_bytes(4, "little")
        for tag, mode, who in entries
    )
    try:
        os.setxattr(folder, "system.posix_acl_access", (2).to_bytes(4, "little") + content)
    except OSError as error:
        pytest.skip(f"this file system has no lists: {error}")
    assert folder.stat().st_mode & stat.S_IWGRP


Change = Callable[[Path], object]
ATTACKS: dict[str, tuple[Change, str]] = {
    "by everybody": (lambda folder: folder.chmod(0o777), "writable by everybody"),
    "by everybody, though sticky": (lambda folder: folder.chmod(0o1777), "writable by everybody"),
    "through a parent": (lambda folder: folder.parent.chmod(0o777), "writable by everybody"),
    "through a parent of a link": (through_a_parent_of_a_link, "between is writable by everybody"),
}
ATTACKS_BY_ROOT: dict[str, tuple[Change, str]] = {
    "by a group": (by_a_group, f"writable by a group ({OTHER})"),
    "by another": (by_another, f"another user ({OTHER})"),
    "by a list": (by_a_list, "writable by a group"),
    "through a parent of a group": (
        lambda folder: by_a_group(folder.parent),
        f"above is writable by a group ({OTHER})",
    ),
    "through another's parent": (
        lambda folder: (by_another(folder.parent), folder.parent.chmod(0o1755)),
        f"above is another user ({OTHER})",
    ),
    "through a link": (through_a_link, f"another user ({OTHER})"),
}


@pytest.fixture
def messages(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """What was logged as a warning, or for more."""

    def logged() -> list[str]:
        log.flush()
        return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]

    return logged


@pytest.mark.parametrize("attack", [*ATTACKS, *(pytest.param(name, marks=as_root) for name in ATTACKS_BY_ROOT)])
def test_what_others_may_write_is_not_run(chosen: Path, attack: str, messages: Callable[[], list[str]]) -> None:
    assert object_cache.cached("a", built) == b"planted"
    change, said = (ATTACKS | ATTACKS_BY_ROOT)[attack]
    change(chosen)
    for _ in range(2):
        assert object_cache.cached("a", built) == b"own"
    [message] = messages()
    assert said in message
    assert str(elsewhere()) in message
    assert stat.S_IMODE(elsewhere().stat().st_mode) == 0o700
    assert object_cache.folder() == elsewhere()
    assert object_cache.read("a") == b"own", "later processes find it there"
    assert {path.name for path in chosen.iterdir()} == {"a"}, "nothing was written to it"


def test_nothing_is_made_where_others_may_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chosen: Path) -> None:
    monkeypatch.setenv("ACCEL_CACHE_DIR", str(chosen.parent / "new" / "er"))
    chosen.parent.chmod(0o777)
    assert object_cache.cached("a", built) == b"own"
    assert {path.name for path in chosen.parent.iterdir()} == {"chosen"}


@pytest.mark.parametrize("made", ["a file", "a link", "entered by others", pytest.param("another's", marks=as_root)])
def test_where_somebody_made_that_first_the_process_has_its_own(
    chosen: Path, made: str, messages: Callable[[], list[str]]
) -> None:
    chosen.chmod(0o777)
    if made == "a file":
        elsewhere().write_text("")
    elif made == "a link":
        elsewhere().symlink_to(chosen)
    else:
        elsewhere().mkdir(mode=0o750)
        if made == "another's":
            by_another(elsewhere())
            elsewhere().chmod(0o700)
    before = elsewhere().lstat()
    for _ in range(2):
        assert object_cache.cached("a", built) == b"own"
        assert object_cache.read("a") == b"own"
    assert elsewhere().lstat() == before
    folder = object_cache.folder()
    assert folder.parent == elsewhere().parent != folder
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    [message] = messages()
    assert str(folder) in message


def test_where_there_is_no_place_at_all_it_is_run_and_not_kept(chosen: Path, messages: Callable[[], list[str]]) -> None:
    chosen.chmod(0o777)
    elsewhere().parent.chmod(0o777)
    assert object_cache.cached("a", built) == b"own"
    assert object_cache.cached("a", built) == b"own"
    assert object_cache.read("a") is None
    [message] = messages()
    assert "not kept" in message


def test_a_process_removes_its_own_folder_and_its_children_do_not(tmp_path: Path) -> None:
    program = """
import os, sys
from accel.system.native import object_cache
os.environ["ACCEL_CACHE_DIR"] = sys.argv[1]
object_cache.keep("a", b"code")
folder = object_cache.folder()
if (child := os.fork()) == 0:
    sys.exit(0)
os.waitpid(child, 0)
assert object_cache.read("a") == b"code"
print(folder)
"""
    refused, temporary = tmp_path / "refused", tmp_path / "temporary"
    for folder in (refused, temporary):
        folder.mkdir()
    refused.chmod(0o777)
    (temporary / f"accel-{os.geteuid()}").write_text("")
    done = subprocess.run(
        [sys.executable, "-c", program, str(refused)],
        env={**os.environ, "TMPDIR": str(temporary)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert Path(done.stdout.strip()).parent == temporary
    assert not Path(done.stdout.strip()).exists()


# -- what goes on working ------------------------------------------------------------------------------------------


USED: dict[str, Change] = {
    "own group": lambda folder: folder.chmod(0o775),
    "sticky parent": lambda folder: folder.parent.chmod(0o1777),
    "own link": lambda folder: folder.symlink_to(folder.rename(folder.parent.parent / "real")),
    "read-only": lambda folder: ((folder / "a").chmod(0o444), folder.chmod(0o555)),
}


@pytest.mark.parametrize("change", USED)
def test_what_only_this_user_may_write_is_used(chosen: Path, change: str, messages: Callable[[], list[str]]) -> None:
    USED[change](chosen)
    assert object_cache.cached("a", built) == b"planted"
    assert not messages()


@as_root
def test_what_root_has_made_serves_every_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container image, whose user may not write there."""
    with tempfile.TemporaryDirectory() as above:
        os.chmod(above, 0o755)
        folder = Path(above) / "opt" / "accel"
        monkeypatch.setenv("ACCEL_CACHE_DIR", str(folder))
        object_cache.keep("a", b"code")

        def of_another() -> bool:
            os.setgroups([])
            os.setgid(OTHER)
            os.setuid(OTHER)
            return object_cache.read("a") == b"code" and object_cache.folder() == folder

        assert in_child(of_another)()


def test_a_folder_is_made_with_parents_that_only_this_user_may_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ACCEL_CACHE_DIR", str(tmp_path / "not" / "yet"))
    before = os.umask(0)
    try:
        object_cache.keep("a", b"code")
    finally:
        os.umask(before)
    assert object_cache.read("a") == b"code"
    assert [stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "not", tmp_path / "not" / "yet")] == [0o755] * 2


@pytest.mark.parametrize("mode", [0o646, pytest.param(0o666, id="all")])
def test_a_file_that_others_may_write_is_made_again(chosen: Path, mode: int, messages: Callable[[], list[str]]) -> None:
    """From a time when the folder was another's, too."""
    (chosen / "a").chmod(mode)
    assert object_cache.cached("a", built) == b"own"
    assert "writable by everybody, so it is not run" in "".join(messages())
    assert object_cache.read("a") == b"own"


# -- where owners mean nothing -----------------------------------------------------------------------------------


@as_root
@pytest.mark.parametrize("who", ["the network's", "the namespace's"])
def test_owners_that_mean_nothing_are_named_and_not_refused(
    chosen: Path, who: str, monkeypatch: pytest.MonkeyPatch, messages: Callable[[], list[str]]
) -> None:
    nobody = 65534 if who == "the namespace's" else OTHER
    os.chown(chosen, nobody, -1)
    if who == "the namespace's":
        monkeypatch.setattr(trust, "_namespace", lambda: ["1000", "1000", "1"])
    else:
        squashed = tempfile.TemporaryFile

        def made(**given: Path) -> object:
            file = squashed(**given)
            os.fchown(file.fileno(), nobody, -1)
            return file

        monkeypatch.setattr(tempfile, "TemporaryFile", made)
    for _ in range(2):
        assert object_cache.cached("a", built) == b"planted"
    [message] = messages()
    assert f"owners of files mean nothing here (user {nobody})" in message
    chosen.chmod(0o777)
    assert object_cache.cached("a", built) == b"own", "everybody is somebody else in any case"


def test_a_system_without_owners(
    chosen: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delattr(os, "geteuid")
    chosen.chmod(0o777)
    with caplog.at_level(logging.INFO, "accel"):
        assert object_cache.cached("a", built) == b"planted"
        assert object_cache.cached("b", built) == b"own"
        assert object_cache.cached_path("b", built) == chosen / "b"
        log.flush()
    assert "this system has no owners and modes" in caplog.text


def test_links_that_lead_nowhere_are_errors(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(OSError, match="symbolic links"):
        trust.opened(tmp_path / "a")
    with pytest.raises(FileNotFoundError):
        trust.opened(tmp_path / "c" / ".." / "d")
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        trust.opened(tmp_path / "file")
    tmp_path.chmod(0o755)
    with pytest.raises(Untrusted, match="not this user's alone"):
        trust.opened(tmp_path / ".." / tmp_path.name, private=True)
