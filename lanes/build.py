"""Builds a lane from the package index alone: a shared base, and a thin environment per release upon it.

A lane is built in place (an environment cannot be moved) and stamped last with its recipe's hash, so a half-built one
is never taken for a lane; a lock makes a second builder wait for the first.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from lanes.model import make_models
from lanes.rows import BASE_PINS, PYTHON, RECIPE, ROWS, STAND_INS, TORCH, Row

PROGRAMS = Path(__file__).parent / "programs"
STAMP = ".recipe"
IMPORTS = ("sglang.launch_server", "sglang.srt.model_executor.model_runner", "sglang.srt.entrypoints.http_server")


class LaneError(Exception):
    """A lane that cannot be built or served; the text is for a person."""


@dataclass(frozen=True)
class Lane:
    """A built lane: the interpreter that has this SGLang, and the model to serve."""

    version: str
    python: Path
    model: Path
    """The tiny Llama. The other models and the adapter lie beside it."""

    def spelled(self, words: Iterable[str]) -> list[str]:
        """Put this lane's `{python}`, `{bin}` and `{models}`, and our `{programs}`, into the words of a command."""
        places = {"python": self.python, "bin": self.python.parent, "models": self.model.parent, "programs": PROGRAMS}
        return [word.format(**places) for word in words]


def lanes_root() -> Path:
    """Return where lanes are kept: `SGLANG_PROBE_LANES`, else below the user's cache directory."""
    if given := os.environ.get("SGLANG_PROBE_LANES"):
        return Path(given).resolve()
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache).resolve() / "sglang-probe" / "lanes"


def build_lane(version: str, root: Path | None = None) -> Lane:
    """Return the lane of `version`, building what is missing; raise LaneError where that cannot be."""
    row = ROWS.get(version)
    if row is None:
        raise LaneError(f"no lane for SGLang {version!r}; there is one for each of {', '.join(ROWS)}")
    if sys.version_info[:2] != PYTHON:
        wanted, found = ".".join(map(str, PYTHON)), ".".join(map(str, sys.version_info[:2]))
        raise LaneError(f"a lane's pins need CPython {wanted}, and this is {found}; run lane.py with python{wanted}")
    root = root or lanes_root()
    base, thin = root / "base", root / version
    base_recipe = _hash([str(RECIPE), *TORCH, BASE_PINS.read_text()])
    with building(base, base_recipe) as needed:
        if needed:
            _build_base(base)
    with building(thin, _hash([base_recipe, repr(row), *_stand_in_texts(row)])) as needed:
        if needed:
            _build_thin(thin, row, base)
    return Lane(version, thin / "bin" / "python", make_models(root))


@contextmanager
def building(directory: Path, recipe: str) -> Iterator[bool]:
    """Hold the directory's lock; yield whether it must be built, emptied first, and stamp it if that went well."""
    stamp = directory / STAMP
    directory.parent.mkdir(parents=True, exist_ok=True)
    with (directory.parent / f".{directory.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if stamp.exists() and stamp.read_text() == recipe:
            yield False
            return
        if directory.exists():
            shutil.rmtree(directory)
        yield True
        stamp.write_text(recipe)


def _build_base(base: Path) -> None:
    _say(f"building the lanes' base in {base}: torch and what SGLang needs, 2 GB or more, some minutes")
    _venv(base)
    _pip(base, *TORCH)
    _pip(base, "--no-deps", "-r", str(BASE_PINS))


def _build_thin(thin: Path, row: Row, base: Path) -> None:
    _say(f"building the lane of SGLang {row.version} in {thin}: about a minute")
    _venv(thin)
    (_site_packages(thin) / "lanes_base.pth").write_text(f"{_site_packages(base)}\n")
    _pip(thin, "--no-deps", f"sglang=={row.version}", *row.alone)
    _pip(thin, *row.needs, *row.probe)
    for name in row.stand_ins:
        shutil.copytree(STAND_INS / name, _site_packages(thin) / name, ignore=shutil.ignore_patterns("__pycache__"))
    check = "import " + ", ".join(IMPORTS)
    _run([str(thin / "bin" / "python"), "-W", "ignore", "-c", check], SGLANG_USE_CPU_ENGINE="1")


def _venv(directory: Path) -> None:
    _run([sys.executable, "-m", "venv", str(directory)])


def _pip(environment: Path, *arguments: str) -> None:
    pip = [str(environment / "bin" / "python"), "-m", "pip", "--quiet", "--disable-pip-version-check"]
    _run([*pip, "install", *arguments])


def _site_packages(environment: Path) -> Path:
    return environment / "lib" / f"python{PYTHON[0]}.{PYTHON[1]}" / "site-packages"


def _run(command: list[str], **variables: str) -> None:
    """Run quietly, free of the caller's Python settings; raise LaneError with the end of the output where it fails."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")} | variables
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        tail = "\n".join((done.stdout + done.stderr).splitlines()[-15:])
        raise LaneError(f"`{' '.join(command)}` ended with {done.returncode}:\n{tail}")


def _stand_in_texts(row: Row) -> list[str]:
    return [path.read_text() for name in row.stand_ins for path in sorted((STAND_INS / name).rglob("*.py"))]


def _hash(parts: Iterable[str]) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
