"""What scripts/ makes: pinned versions and licences, which name all that pyproject.toml asks for."""

import importlib
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Imports one of the scripts."""
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    yield importlib.import_module
    for name in ("licenses", "pinned"):
        sys.modules.pop(name, None)


def required(*extras: str) -> list[Requirement]:
    """What accel and these extras require directly, here."""
    found = map(Requirement, metadata.requires("accel-vision") or [])
    return [each for each in found if not each.marker or any(each.marker.evaluate({"extra": e}) for e in ("", *extras))]


def test_the_pinned_versions_are_allowed(script: Any) -> None:
    pinned = script("pinned")
    lines = [line for line in pinned.FILE.read_text().splitlines() if not line.startswith("#")]
    versions = dict(line.split("==") for line in lines)
    assert [*versions] == sorted(versions)
    for each in required(*pinned.EXTRAS):
        assert each.specifier.contains(versions[canonicalize_name(each.name)], prereleases=True), str(each)


def test_the_licences_are_those_of_what_is_installed(script: Any) -> None:
    licenses = script("licenses")
    page = licenses.PAGE.read_text()
    rows = licenses.listed(page)
    assert page == licenses.HEAD + "".join(f"| {n} | {told} | {why} |\n" for n, (told, why) in sorted(rows.items()))
    extras = metadata.metadata("accel-vision").get_all("Provides-Extra") or []
    missing = {canonicalize_name(each.name) for each in required(*extras)} - rows.keys()
    assert not missing, "run scripts/licenses.py"
    assert all(told for told, _ in rows.values())


def test_licences_are_read_from_metadata(script: Any) -> None:
    licenses = script("licenses")
    assert licenses.needed([])["numpy"] == "accel"
    assert licenses.needed()["pytest"] == "`test`"
    assert "BSD" in licenses.licence("torch")
    rows = licenses.listed(licenses.made("| gone-since | MIT | `cache` |\n"))
    assert rows["gone-since"] == ("MIT", "`cache`")
