"""Made-up SGLangs: as a tree of files, and as a wheel."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path

RUNNER = "sglang/srt/model_executor/model_runner.py"
SCHEDULER = "sglang/srt/managers/scheduler.py"
FILES: Mapping[str, str] = {
    "sglang/__init__.py": "raise SystemExit('sglang was imported')\n",
    "sglang/srt/__init__.py": "raise SystemExit('sglang was imported')\n",
    SCHEDULER: "class Scheduler:\n    def __init__(self):\n        self.started = True\n",
    RUNNER: "class ModelRunner:\n    def load_model(self):\n        return 1\n",
}
"""An SGLang with two homes, which ends the process that imports it."""


def write_tree(root: Path, files: Mapping[str, str | bytes] = FILES) -> Path:
    """Write files below a directory, and return it."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return root


def write_wheel(
    directory: Path, version: str, files: Mapping[str, str | bytes] = FILES, tag: str = "py3-none-any"
) -> Path:
    """Write a wheel of SGLang that pip takes for one."""
    directory.mkdir(parents=True, exist_ok=True)
    info = f"sglang-{version}.dist-info"
    beside = {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: sglang\nVersion: {version}\n",
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: made up\nRoot-Is-Purelib: true\nTag: {tag}\n",
        f"{info}/RECORD": "",
    }
    path = directory / f"sglang-{version}-{tag}.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in {**files, **beside}.items():
            archive.writestr(name, text)
    return path
