"""Servers of the story, started on fake cards with the probe in them, each from the same SGLang in the same place."""

from __future__ import annotations

import os
import re
from pathlib import Path

import sglang_probe
from sglang_probe.testing import FakeServer, story
from sglang_probe.testing.fakesite import make_site
from sglang_probe.testing.story import DEFAULT_RELEASE, arguments

ROOT = Path(sglang_probe.__file__).resolve().parent.parent
KILL = "        kill_process_tree(os.getpid())\n"
LEFT_OVER = 114880
"""Pid of the process that held a GPU in the story."""


class Starts:
    """Starts of one server: the same directory of SGLang, a directory of events each."""

    def __init__(self, directory: Path, release: str = DEFAULT_RELEASE) -> None:
        self.directory, self.release = directory, release
        self.site = make_site(directory / "site", release)
        # A launcher that lets its ranks end by themselves: which of them is ended first would be chance.
        self.change("sglang._fake.launch", KILL, f"        __import__('time').sleep(3)\n{KILL}")

    def start(self, name: str, fraction: float, *, held: dict[int, int] | None = None) -> Path:
        """Start it, let it end, and return its run directory; `held` is what another process has of cards, in bytes."""
        path = os.pathsep.join([str(ROOT), str(self.site)])
        chosen = {"PYTHONPATH": path, "SGLANG_PROBE_DIR": str(self.directory / "runs"), "SGLANG_PROBE_RUN_ID": name}
        server = FakeServer(
            self.directory / name,
            story(self.release),
            release=self.release,
            arguments=arguments(fraction),
            environment=chosen,
        )
        for gpu, size in (held or {}).items():
            server.gpus[gpu].add_process(LEFT_OVER, size, name="sglang::scheduler")
        server.run()
        return self.directory / "runs" / name

    def change(self, module: str, before: str, after: str) -> None:
        """Change the source of SGLang."""
        file = self.site / Path(*module.split(".")).with_suffix(".py")
        text = file.read_text(encoding="utf-8")
        assert text.count(before) == 1, before
        file.write_text(text.replace(before, after), encoding="utf-8")


def normalised(text: str) -> str:
    """Return a report without what is another from run to run: seconds, and which ranks were seen to fail."""
    text = re.sub(r"ready [+-][\d.]+ s", "ready +0.0 s", text)
    return re.sub(r"(?m)^(ready after, s) .*$", r"\1 ...", text)
