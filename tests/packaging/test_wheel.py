"""What a wheel puts into an environment."""

from __future__ import annotations

import os
import subprocess
import zipfile
from pathlib import Path

import pytest

ARMED = """
import sys
import sglang_probe
print(sglang_probe.__file__)
print([type(finder).__module__ for finder in sys.meta_path].count("sglang_probe.agent.finder"))
"""


@pytest.fixture(scope="session")
def names(wheel: Path) -> set[str]:
    """Every file in the wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def files_below(directory: Path) -> set[str]:
    """The files of a package, relative to where it stands, without what Python and tools leave there."""
    files = {path.relative_to(directory.parent) for path in directory.rglob("*") if path.is_file()}
    return {str(path) for path in files if path.suffix != ".pyc" and not any(part[0] == "." for part in path.parts)}


def test_the_wheel_puts_only_the_package_into_site_packages(names: set[str]) -> None:
    tops = {name.split("/")[0] for name in names}
    assert {"sglang_probe"} == {top for top in tops if not top.endswith(".dist-info")}


def test_the_wheel_carries_the_doorbell_inside_the_package(names: set[str], root: Path) -> None:
    doorbell = {f"sglang_probe/_inject/{name}" for name in files_below(root / "sitecustomize")}
    assert "sglang_probe/_inject/sitecustomize/__init__.py" in doorbell
    assert doorbell <= names


def test_the_wheel_carries_every_file_of_the_package_data_included(names: set[str], root: Path) -> None:
    assert set() == files_below(root / "sglang_probe") - names


def test_the_wheel_says_that_its_types_are_checked(names: set[str]) -> None:
    assert "sglang_probe/py.typed" in names


def test_python_in_an_environment_with_the_wheel_does_not_ring_the_doorbell_by_itself(installed: Path) -> None:
    done = subprocess.run(
        [installed / "python", "-c", "import sys; print('sglang_probe' in sys.modules)"], capture_output=True, text=True
    )
    assert ("False\n", "") == (done.stdout, done.stderr)


def test_the_directory_that_pythonpath_prints_arms_the_agent_of_the_wheel(installed: Path) -> None:
    printed = subprocess.run([installed / "sglang-probe", "pythonpath"], capture_output=True, text=True, check=True)
    done = subprocess.run(
        [installed / "python", "-c", ARMED],
        env={**os.environ, "PYTHONPATH": printed.stdout.strip()},
        capture_output=True,
        text=True,
    )
    assert "" == done.stderr
    package, armed = done.stdout.splitlines()
    assert Path(package).is_relative_to(installed.parent)
    assert "1" == armed


@pytest.mark.skipif("SGLANG_PROBE_WHEEL" not in os.environ, reason="only `make test` runs against the installed wheel")
def test_the_tests_run_against_the_installed_wheel() -> None:
    import sglang_probe

    assert "site-packages" in Path(sglang_probe.__file__).resolve().parts
