"""The examples of docs/testing.md are tests, and they pass as they stand."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import sglang_probe.testing


def test_every_example_passes(root: Path, tmp_path: Path) -> None:
    text = (root / "docs" / "testing.md").read_text(encoding="utf-8")
    examples = re.findall(r"^```python\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)
    for number, example in enumerate(examples):
        (tmp_path / f"test_example_{number}.py").write_text(example)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", "-p", "no:cacheprovider", str(tmp_path)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(root), "SGLANG_PROBE": "0"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    assert f"{len(examples)} passed" in done.stdout


def test_the_first_example_is_no_longer_than_it_says(root: Path) -> None:
    text = (root / "docs" / "testing.md").read_text(encoding="utf-8")
    (first,) = re.findall(r"## A test in ten lines\n+```python\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)
    assert len(first.splitlines()) <= 10


def test_what_the_package_offers_is_there(root: Path) -> None:
    text = (root / "docs" / "testing.md").read_text(encoding="utf-8")
    for name in sglang_probe.testing.__all__:
        assert hasattr(sglang_probe.testing, name)
    for name in set(re.findall(r"`([A-Z]\w+)(?:\(|`)", text)):
        assert name in sglang_probe.testing.__all__ or name.isupper(), name
