"""The story's question, "it worked yesterday": what `diff` says of the three things that can have happened since."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sglang_probe.testing.story import MEM_FRACTION_STATIC
from tests.story.starts import ROOT, Starts, normalised

GIB = 1 << 30
GOLDEN = Path(__file__).parent / "golden"
WORKS = 0.80
MIXIN = "sglang.srt.model_executor.model_runner_kv_cache_mixin"
FORMULA = "        rest_memory = available_gpu_memory - total_gpu_memory * (1 - self.mem_fraction_static)\n"


@pytest.fixture(scope="module")
def starts(tmp_path_factory: pytest.TempPathFactory) -> Starts:
    """Yesterday's start, which worked, and what can have happened to today's."""
    made = Starts(tmp_path_factory.mktemp("story"))
    made.start("yesterday", WORKS)
    made.start("fraction", MEM_FRACTION_STATIC)
    made.start("left-over", WORKS, held={5: 4 * GIB})
    made.change(MIXIN, FORMULA, f"{FORMULA}        rest_memory -= 3.5\n")
    made.start("pulled", WORKS)
    return made


def diff(starts: Starts, *names: str) -> str:
    runs = [str(starts.directory / "runs" / name) for name in names]
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, "-m", "sglang_probe", "diff", *runs]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=ROOT, env=env)
    assert done.returncode == 0, done.stderr
    return normalised(done.stdout)


def golden(name: str, text: str) -> str:
    """Return the golden text of a name. WRITE_GOLDEN=1 writes what was printed: read it before you commit it."""
    path = GOLDEN / f"diff-{name}.txt"
    if os.environ.get("WRITE_GOLDEN"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return path.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("today", "settles"),
    [
        ("fraction", "--mem-fraction-static 0.8 -> 0.55 explains the outcome"),
        ("left-over", "pid 114880, 4.000 GiB, explains the outcome"),
        ("pulled", "the changed body of profile_max_num_token explains the outcome"),
    ],
)
def test_one_look_settles_why_it_worked_yesterday(starts: Starts, today: str, settles: str) -> None:
    text = diff(starts, "yesterday", today)

    assert golden(today, text) == text
    assert settles in " ".join(text.split("\n\n")[1].split())


def test_all_of_them_make_a_matrix(starts: Starts) -> None:
    text = diff(starts, "yesterday", "fraction", "left-over", "pulled")

    assert golden("matrix", text) == text
