"""Build the same bytes from the same files, with a description and a bill of materials made of README and pyproject.

The description on a package index is README.md; its links lead to the repository that pyproject.toml names. The bill
(CycloneDX, https://cyclonedx.org) lies in the wheel's .dist-info/sboms. All else of the package is in pyproject.toml.
"""

import gzip
import json
import os
import re
import shutil
import tarfile
from pathlib import Path

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.sdist import sdist

EPOCH = os.environ.setdefault("SOURCE_DATE_EPOCH", "315532800")  # the first time that a wheel can name: 1980
_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)")


def description(text: str, repository: str | None) -> str:
    """Make README.md's text fit to stand by itself.

    Args:
        repository: the address that relative links are resolved against; without one, links become their text, and
            pictures are left out.
    """

    def link(match: re.Match[str]) -> str:
        picture, words, target = match.groups()
        if "://" in target or target.startswith("#"):
            return match[0]
        if repository is None:
            return "" if picture else words
        return f"{picture}[{words}]({repository}/{'raw' if picture else 'blob'}/HEAD/{target})"

    return _LINK.sub(link, re.sub(r"<!-- .*? -->", "", text))


def repository(pyproject: str) -> str | None:
    """Find the setting ``Source`` of ``[project.urls]``; it cannot be read as TOML, as Python 3.10 has no reader."""
    found = re.search(r'^\[project\.urls\]\n(?:.+\n)*?Source = "([^"]+)"', pyproject, re.MULTILINE)
    return found[1].rstrip("/") if found else None


def bill(name: str, version: str, licence: str, required: list[str], extras: dict[str, list[str]]) -> dict[str, object]:
    """The bill of materials of a distribution: it holds its own files alone, and names what it requires.

    Args:
        required: requirements, such as "numpy>=1.26". extras: those of each extra.
    """

    def component(requirement: str, extra: str | None = None) -> dict[str, object]:
        needed = re.split(r"[^\w.-]", requirement, maxsplit=1)[0]
        properties = {"requirement": requirement, **({"extra": extra} if extra else {})}
        return {
            "type": "library",
            "bom-ref": f"{needed} for {extra}" if extra else needed,
            "name": needed,
            "purl": f"pkg:pypi/{needed.lower().replace('_', '-')}",
            "scope": "optional" if extra else "required",
            "properties": [{"name": f"accel:{key}", "value": value} for key, value in properties.items()],
        }

    own = {
        "type": "library",
        "bom-ref": name,
        "name": name,
        "version": version,
        "purl": f"pkg:pypi/{name}@{version}",
        "licenses": [{"license": {"id": licence}}],
    }
    components = [
        *map(component, sorted(required)),
        *(component(each, extra) for extra, needed in sorted(extras.items()) for each in sorted(needed)),
    ]
    depends = [each["bom-ref"] for each in components]
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": own},
        "components": components,
        "dependencies": [{"ref": name, "dependsOn": depends}],
    }


class Wheel(bdist_wheel):
    """A wheel with its bill of materials, and without what an earlier build of the same folder has left."""

    def run(self) -> None:
        shutil.rmtree(self.get_finalized_command("build").build_lib, ignore_errors=True)
        super().run()

    def egg2dist(self, egginfo_path: str, distinfo_path: str) -> None:
        super().egg2dist(egginfo_path, distinfo_path)
        of = self.distribution
        found = bill(
            of.get_name(), of.get_version(), of.metadata.license_expression, of.install_requires, of.extras_require
        )
        folder = Path(distinfo_path) / "sboms"
        folder.mkdir()
        (folder / "accel_vision.cdx.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


class Source(sdist):
    """A source distribution without the clock, the owner and the order of this machine's files."""

    def make_archive(
        self, base_name: str, format: str, root_dir: str | None = None, base_dir: str = "", **_: object
    ) -> str:
        name = f"{base_name}.tar.gz"
        paths = sorted(path for path in Path(base_dir).rglob("*") if path.is_file())
        with (
            open(name, "wb") as file,
            gzip.GzipFile("", "wb", 9, file, int(EPOCH)) as packed,
            tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
        ):
            for path in paths:
                archive.add(path, path.as_posix(), filter=_anybody)
        return name


def _anybody(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mtime = int(EPOCH)
    member.mode = 0o755 if member.mode & 0o100 else 0o644
    return member


if __name__ == "__main__":
    here = Path(__file__).parent
    text = (here / "README.md").read_text(encoding="utf-8")
    source = repository((here / "pyproject.toml").read_text(encoding="utf-8"))
    setup(
        long_description=description(text, source),
        long_description_content_type="text/markdown",
        cmdclass={"bdist_wheel": Wheel, "sdist": Source},
    )
