"""Fake sites: a directory for PYTHONPATH in which `sglang`, `torch` and `pynvml` are stand-ins of one SGLang release.

    python -m sglang_probe.testing 0.5.14 DIR

It is made where it is asked for and nowhere else, so it never hides a real torch by accident. It stands alone: nothing
of the project is imported from it, and a test may edit a function in it to see what a changed SGLang looks like.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

RELEASES: Final = ("0.5.9", "0.5.14")

DISTRIBUTIONS: Final[dict[str, dict[str, str]]] = {
    "0.5.9": {"sglang": "0.5.9", "torch": "2.9.1", "sgl-kernel": "0.3.21", "nvidia-ml-py": "13.580.82"},
    "0.5.14": {"sglang": "0.5.14", "torch": "2.11.0", "sglang-kernel": "0.4.4", "nvidia-ml-py": "13.580.82"},
}
"""What `importlib.metadata` finds in a fake site of each release."""

_HERE: Final = Path(__file__).parent


def make_site(directory: Path | str, release: str) -> Path:
    """Make the fake site of an SGLang release in `directory` (made where missing) and return its path.

    Raises ValueError for a release there is no stand-in of.
    """
    if release not in RELEASES:
        raise ValueError(f"no fake sglang {release!r}: there are {', '.join(RELEASES)}")
    site = Path(directory).absolute()
    for source, target in (
        (_HERE / "core", site / "fakegpu"),
        (_HERE / "site" / "common", site),
        (_HERE / "site" / f"r{release.replace('.', '_')}", site),
    ):
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
    for name, version in DISTRIBUTIONS[release].items():
        _distribution(site, name, version)
    return site


def _distribution(site: Path, name: str, version: str) -> None:
    directory = site / f"{name.replace('-', '_')}-{version}.dist-info"
    directory.mkdir(exist_ok=True)
    (directory / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n", encoding="utf-8")
