"""Where SGLang lies in a Python environment that is named by its root or its interpreter. Nothing of it is run."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

_PYTHON: Final = re.compile(r"(?:python|pypy)(\d+(?:\.\d+)?t?)?")
_SITES: Final = ("site-packages", "dist-packages")
_LARGEST: Final = 1 << 20
"""Bytes of a file that says where something is installed."""


def is_python(path: Path) -> bool:
    """Tell whether a path is an interpreter by its name; the link in a venv may lead nowhere on this machine."""
    return bool(_PYTHON.fullmatch(path.name)) and os.path.lexists(path) and not path.is_dir()


def sites_of(named: Path) -> list[Path]:
    """Return the directories of packages of an environment, nearest first; empty where `named` is no environment."""
    if not is_python(named):
        return _with_system(named, "")
    real = Path(os.path.realpath(named))
    version = next((found[1] for one in (named, real) if (found := _PYTHON.fullmatch(one.name)) and found[1]), "")
    version = version if "." in version else ""
    near = _with_system(named.absolute().parent.parent, version)
    return near or _with_system(real.parent.parent, version)


def package_in(sites: Iterable[Path]) -> Path | None:
    """Return the directory of the package `sglang` that an import would take, or None."""
    return next((one for site in sites for one in _places(site) if (one / "srt").is_dir()), None)


def metadata_in(sites: Iterable[Path]) -> Path | None:
    """Return the METADATA of the SGLang that is installed there, or None."""
    return next((one for site in sites for one in sorted(site.glob("sglang-*.dist-info/METADATA"))), None)


def _with_system(root: Path, version: str) -> list[Path]:
    """Return an environment's own directories, and for a venv that sees them, those of the Python it was made from."""
    own = _sites(root, version)
    settings = dict(_settings(root / "pyvenv.cfg")) if own else {}
    if settings.get("include-system-site-packages", "").lower() == "true" and settings.get("home"):
        own += _sites(Path(settings["home"]).parent, version or own[0].parent.name.removeprefix("python"))
    return own


def _sites(root: Path, version: str) -> list[Path]:
    """Newest Python first, where there are several below one root."""
    found = {site for name in _SITES for site in root.glob(f"lib/python{version or '*'}/{name}") if site.is_dir()}
    return sorted(found, key=lambda site: [int(part) for part in re.findall(r"\d+", site.parent.name)], reverse=True)


def _settings(file: Path) -> Iterator[tuple[str, str]]:
    for line in _text(file).splitlines():
        name, _, value = line.partition("=")
        yield name.strip().lower(), value.strip()


def _places(site: Path) -> Iterator[Path]:
    """Yield where the package may be: in the directory itself, then where an editable install points."""
    yield site / "sglang"
    for link in sorted(site.glob("sglang-*.dist-info/direct_url.json")):
        for root in _linked(link):
            yield from (root / "sglang", root / "python" / "sglang")
    for file in sorted(site.glob("*.pth")):
        for line in _text(file).splitlines():
            if line.strip() and "\0" not in line and not line.startswith(("#", "import ", "import\t")):
                yield site / line.strip() / "sglang"


def _linked(link: Path) -> Iterator[Path]:
    with suppress(ValueError, AttributeError, TypeError):  # no JSON, or another shape: not ours to mend
        found = json.loads(_text(link))
        url = urlsplit(found["url"]) if found.get("dir_info", {}).get("editable") else None
        if url and url.scheme == "file" and "\0" not in (path := unquote(url.path)):
            yield Path(path)


def _text(file: Path) -> str:
    try:
        if not file.is_file() or file.stat().st_size > _LARGEST:
            return ""
        return file.read_text("utf-8", "replace")
    except OSError:
        return ""
