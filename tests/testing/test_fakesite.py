"""A fake site is made where it is asked for, stands alone, and can be edited."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sglang_probe.testing import RELEASES, FakeGpus, installed, make_site


@pytest.mark.parametrize("release", RELEASES)
def test_a_site_is_of_its_release_by_every_account(tmp_path: Path, release: str) -> None:
    site = make_site(tmp_path / "site", release)
    code = "import sglang, torch; from importlib.metadata import version; "
    code += "print(sglang.__version__, version('sglang'), torch.__version__.partition('+')[0], version('torch'))"
    done = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": str(site)}, capture_output=True, text=True, check=True
    )
    sglang, metadata, torch, torch_metadata = done.stdout.split()
    assert [release, release] == [sglang, metadata]
    assert torch == torch_metadata


def test_nothing_of_the_project_is_needed_by_a_site(tmp_path: Path) -> None:
    site = make_site(tmp_path / "site", "0.5.14")
    assert [] == [path for path in site.rglob("*.py") if "sglang_probe." in path.read_text(encoding="utf-8")]


def test_a_release_without_a_stand_in_is_refused_with_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no fake sglang '0.4.6': there are 0.5.9, 0.5.14"):
        make_site(tmp_path, "0.4.6")


def test_the_command_prints_the_directory_for_pythonpath(tmp_path: Path, root: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "sglang_probe.testing", "0.5.9", "here"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(root), "SGLANG_PROBE": "0"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert f"{tmp_path / 'here'}\n" == done.stdout
    assert (tmp_path / "here" / "sglang" / "launch_server.py").is_file()


def test_an_edited_site_is_used_as_it_is(tmp_path: Path) -> None:
    site = make_site(tmp_path / "site", "0.5.14")
    (site / "sglang" / "_version.py").write_text('__version__ = "0.5.14+ours"\n__version_tuple__ = ()\n')
    with installed(FakeGpus.create(tmp_path / "gpus"), site=site):
        import sglang

        assert "0.5.14+ours" == sglang.__version__
    assert site.is_dir()


@pytest.mark.parametrize("release", RELEASES)
def test_a_site_is_typed_throughout(tmp_path: Path, release: str) -> None:
    site = make_site(tmp_path / "site", release)
    checker = [sys.executable, "-m", "mypy", "--strict", "--explicit-package-bases", "--namespace-packages"]
    checked = ["-p", "sglang", "-p", "torch", "-p", "fakegpu", "-m", "pynvml"]
    done = subprocess.run([*checker, "--cache-dir", str(tmp_path), *checked], cwd=site, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_a_real_torch_is_hidden_only_where_a_site_is_on_the_path(root: Path) -> None:
    package = root / "sglang_probe"
    parents = {path.parent.parent for path in package.rglob("torch/__init__.py")}
    assert parents
    assert not parents & {root, package}
