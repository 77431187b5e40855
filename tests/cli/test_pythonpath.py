"""`sglang-probe pythonpath`: where the doorbell of this installation lies."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import sglang_probe

Probe = Callable[..., "subprocess.CompletedProcess[str]"]

PACKAGE = Path(sglang_probe.__file__).resolve().parent


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A copy of the package as a wheel lays it, without a doorbell."""
    copy = tmp_path / "site packages"
    shutil.copytree(PACKAGE, copy / "sglang_probe", ignore=shutil.ignore_patterns("_inject", "__pycache__"))
    return copy


def doorbell(directory: Path, text: str = "import sglang_probe\n") -> Path:
    package = directory / "sitecustomize"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(text)
    return directory


def test_the_printed_directory_holds_our_sitecustomize(probe: Probe) -> None:
    shown = probe("pythonpath")

    (line,) = shown.stdout.splitlines()
    assert "sglang_probe" in (Path(line) / "sitecustomize" / "__init__.py").read_text()
    assert Path(line).is_absolute()


def test_a_wheel_keeps_it_inside_the_package(probe: Probe, site: Path) -> None:
    inside = doorbell(site / "sglang_probe" / "_inject")

    assert probe("pythonpath", root=site).stdout == f"{inside}\n"


def test_a_checkout_is_itself_the_directory(probe: Probe, site: Path) -> None:
    doorbell(site)

    assert probe("pythonpath", root=site).stdout == f"{site}\n"


@pytest.mark.parametrize("foreign", [None, "import coverage\n"])
def test_without_a_doorbell_of_ours_it_prints_no_directory(probe: Probe, site: Path, foreign: str | None) -> None:
    if foreign:
        doorbell(site, foreign)

    refused = probe("pythonpath", root=site)

    assert (refused.returncode, refused.stdout) == (2, "")
    assert "reinstall" in refused.stderr
    assert refused.stderr.count("\n") == 1


def test_a_directory_that_pythonpath_cannot_hold_is_refused(probe: Probe, tmp_path: Path) -> None:
    root = tmp_path / "a:b"
    shutil.copytree(PACKAGE, root / "sglang_probe", ignore=shutil.ignore_patterns("_inject", "__pycache__"))
    doorbell(root)

    refused = probe("pythonpath", root=root)

    assert refused.returncode == 2
    assert "':'" in refused.stderr
