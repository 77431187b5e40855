"""An SGLang as files: a wheel, a source tree, or what is installed here. It is read and never imported."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
import sys
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sglang_probe.catalogue.environments import is_python, metadata_in, package_in, sites_of
from sglang_probe.catalogue.errors import SourceError, Unreadable
from sglang_probe.catalogue.wheels import Say, silent, version_in, wheel_of

INSTALLED: Final = "installed"
"""The word for the SGLang of this environment, where a version or a path may stand."""
LARGEST_FILE: Final = 2 << 20
"""Bytes. SGLang's largest module is under 0.5 MB; a hostile wheel can unpack to anything."""
_ASSIGNED_VERSION: Final = re.compile(r"""^(?:__version__|version)\b[^='"\n]*=[^'"\n]*['"]([^'"\n]+)""", re.MULTILINE)
_METADATA_VERSION: Final = re.compile(r"^Version: *(\S+)", re.MULTILINE)
_DAMAGE: Final = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError, OSError)
"""What reading a member of a broken, encrypted or oddly packed wheel raises."""


@dataclass(frozen=True, slots=True)
class ModuleText:
    """A module as its file has it, decoded; lines end in a newline character alone."""

    name: str
    text: str
    is_package: bool


@dataclass(frozen=True, slots=True)
class Source:
    """One SGLang, open for reading."""

    path: str
    """The wheel, or the directory of the package `sglang`."""
    version: str | None
    """As the files say, or None where they do not: a checkout that was never built."""
    kind: str
    """wheel, tree or installed."""
    read: Callable[[str], bytes | None]
    """From a file's name below the package's parent (`sglang/version.py`) to its bytes, or None where there is none."""

    @property
    def label(self) -> str:
        """The version where it is known, else the path."""
        return self.version or self.path

    def module(self, name: str) -> ModuleText | None:
        """Return the module of that dotted name, or None where this SGLang has none.

        Raises:
            Unreadable: there is a file, but it cannot be read or decoded.
        """
        stem = name.replace(".", "/")
        for file, is_package in ((f"{stem}/__init__.py", True), (f"{stem}.py", False)):
            content = self.read(file)
            if content is not None:
                return ModuleText(name, _decoded(content, file), is_package)
        return None


def open_source(named: str | None = None, say: Say = silent, option: str = "--sglang") -> Source:
    """Return the SGLang that `named` names: a version, a path, or (None, `installed`) the one of this environment.

    A version whose wheel is not kept is downloaded, and `say` hears of it. `option` is what the user named it with.

    Raises:
        SourceError: there is none, or it cannot be read; the text names the value.
    """
    if named is None or named == INSTALLED:
        return installed(option)
    version = version_in(named)
    if version is not None:
        return from_wheel(wheel_of(version, say))
    path = Path(named)
    try:
        if named and path.is_dir():  # an empty path is the current directory, which nobody named
            return from_environment(path) if _is_environment_alone(path) else from_tree(path)
        if named and is_python(path):
            return from_environment(path)
        if path.is_file():
            return from_wheel(path)
        there = bool(named) and path.exists()
    except (OSError, ValueError) as error:  # too long, closed to this user, a NUL inside
        raise SourceError(f"{named!r} cannot be looked at: {getattr(error, 'strerror', None) or error}") from error
    if there:
        raise SourceError(f"{named!r} is neither a wheel nor a directory; name one, or a version such as 0.5.14")
    raise SourceError(f"there is no such path: {named!r}; name a wheel, a source tree or a version such as 0.5.14")


def from_wheel(path: Path) -> Source:
    """Return the SGLang in a wheel file.

    Raises:
        SourceError: it is no zip file, is damaged, or holds no SGLang.
    """
    try:
        archive = zipfile.ZipFile(path)
    except _DAMAGE as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise SourceError(
            f"{str(path)!r} cannot be read as a wheel ({reason}); download it again, or name a directory"
        ) from error
    names = archive.namelist()
    if not any(name.startswith("sglang/srt/") for name in names):
        raise SourceError(f"{str(path)!r} holds no sglang/srt; name a wheel of SGLang")
    metadata = next((name for name in names if re.fullmatch(r"sglang-[^/]+\.dist-info/METADATA", name)), None)

    def read(file: str) -> bytes | None:
        try:
            member = archive.getinfo(file)
        except KeyError:
            return None
        try:
            return _bounded(member.file_size, file, lambda: archive.read(member))
        except _DAMAGE as error:
            raise Unreadable(f"{file} is damaged in the wheel: {error}") from error

    return Source(str(path), _version(read, metadata), "wheel", read)


def from_tree(root: Path) -> Source:
    """Return the SGLang of a checkout, of an unpacked sdist or wheel, or of the directory of the package itself.

    Raises:
        SourceError: no package `sglang` is inside.
    """
    package = _package_in_tree(root)
    if package is None:
        raise SourceError(
            f"{str(root)!r} holds neither sglang/srt nor python/sglang/srt, and is no Python environment;"
            " name a checkout of SGLang, its package, or a venv"
        )
    return _from_package(package, "tree")


def from_environment(named: Path) -> Source:
    """Return the SGLang of a Python environment, named by its root (a venv) or by its interpreter, which is not run.

    Raises:
        SourceError: none is installed there.
    """
    sites = sites_of(named)
    package = package_in(sites)
    if package is None:
        raise SourceError(
            f"no SGLang is installed in the Python environment {str(named)!r}; name another, or a version"
        )
    found = _from_package(package, "installed")
    metadata = None if found.version else metadata_in(sites)
    if metadata is None:
        return found
    version = _METADATA_VERSION.search(metadata.read_text("utf-8", "replace"))
    return Source(found.path, version[1] if version else None, found.kind, found.read)


def _is_environment_alone(root: Path) -> bool:
    return _package_in_tree(root) is None and bool(sites_of(root))


def _package_in_tree(root: Path) -> Path | None:
    return next((one for one in (root / "python" / "sglang", root / "sglang", root) if (one / "srt").is_dir()), None)


def installed(option: str = "--sglang") -> Source:
    """Return the SGLang that this Python would import, found without importing it.

    Raises:
        SourceError: there is none.
    """
    try:
        spec = importlib.util.find_spec("sglang")
    except (ImportError, ValueError) as error:
        raise SourceError(f"the SGLang of {sys.prefix} cannot be found: {error}; name a version or a path") from error
    places = [Path(place) for place in (spec.submodule_search_locations or ())] if spec else []
    package = next((place for place in places if (place / "srt").is_dir()), None)
    if package is None:
        where = f"what is at {str(places[0])!r} holds no srt" if places else f"none is installed in {sys.prefix}"
        raise SourceError(f"no SGLang here: {where}; name one: {option} VERSION or {option} PATH")
    found = _from_package(package, "installed")
    return found if found.version else Source(found.path, _installed_version(), found.kind, found.read)


def _from_package(package: Path, kind: str) -> Source:
    def read(file: str) -> bytes | None:
        path = package / file.removeprefix("sglang/") if file.startswith("sglang/") else package.parent / file
        try:
            if not path.is_file():  # nor a pipe, which would never end
                return None
            return _bounded(path.stat().st_size, file, path.read_bytes)
        except OSError as error:
            raise Unreadable(f"{file} cannot be read: {error.strerror}") from error

    try:
        beside = min(package.parent.glob("sglang-*.dist-info/METADATA"), default=None)
        metadata = beside.relative_to(package.parent).as_posix() if beside else "PKG-INFO"
    except OSError as error:
        raise SourceError(f"{str(package.parent)!r} cannot be listed: {error.strerror}") from error
    return Source(str(package), _version(read, metadata), kind, read)


def _version(read: Callable[[str], bytes | None], metadata: str | None) -> str | None:
    """Ask the built version first: the other file holds a fall-back of its own."""
    asked = [("sglang/_version.py", _ASSIGNED_VERSION), ("sglang/version.py", _ASSIGNED_VERSION)]
    asked += [(metadata, _METADATA_VERSION)] if metadata else []
    for file, pattern in asked:
        try:
            found = pattern.search((read(file) or b"").decode("utf-8", "replace"))
        except Unreadable:
            continue
        if found:
            return found[1]
    return None


def _installed_version() -> str | None:
    try:
        return importlib.metadata.version("sglang")
    except importlib.metadata.PackageNotFoundError:
        return None


def _bounded(size: int, file: str, read: Callable[[], bytes]) -> bytes:
    if size > LARGEST_FILE:
        raise Unreadable(f"{file} has {size} bytes: no module of SGLang's is as large")
    return read()


def _decoded(content: bytes, file: str) -> str:
    try:
        return importlib.util.decode_source(content)
    except (SyntaxError, UnicodeDecodeError, LookupError) as error:
        raise Unreadable(f"{file} cannot be decoded: {error}") from error
