"""Which lanes a run of the tests owes."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from lanes.proof import ALWAYS, PROVEN
from lanes.rows import ROWS


class Ask:
    """Runs the script of the copy."""

    def __init__(self, checkout: Path) -> None:
        self._script = checkout / "lanes" / "proof.py"

    def owed(self) -> tuple[list[str], str]:
        """Return the releases to run, and what they would prove."""
        lanes, proof = self._run("owed").split("\n")[:2]
        return lanes.split(), proof

    def proved(self, proof: str) -> None:
        """Note it."""
        self._run("proved", proof)

    def _run(self, *words: str) -> str:
        done = subprocess.run([sys.executable, self._script, *words], capture_output=True, text=True, check=True)
        return done.stdout


@pytest.fixture
def checkout(tmp_path: Path, root: Path) -> Path:
    """A copy of the folders that a proof is of."""
    copy = tmp_path / "checkout"
    for folder in PROVEN:
        shutil.copytree(root / folder, copy / folder, ignore=shutil.ignore_patterns("__pycache__"))
    return copy


@pytest.fixture
def ask(checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ask:
    monkeypatch.setenv("SGLANG_PROBE_LANES", str(tmp_path / "lanes"))
    return Ask(checkout)


def test_a_fresh_machine_owes_every_lane(ask: Ask) -> None:
    lanes, proof = ask.owed()
    assert list(ROWS) == lanes
    assert proof


def test_after_a_green_run_of_all_one_lane_is_owed(ask: Ask) -> None:
    ask.proved(ask.owed()[1])
    assert ([ALWAYS], "") == ask.owed()


@pytest.mark.parametrize("folder", PROVEN)
def test_a_change_in_what_the_lanes_prove_owes_every_lane_again(ask: Ask, checkout: Path, folder: str) -> None:
    ask.proved(ask.owed()[1])
    (checkout / folder / "new.py").write_text("")
    assert list(ROWS) == ask.owed()[0]


def test_a_change_during_a_run_is_not_taken_for_proven(ask: Ask, checkout: Path) -> None:
    _, proof = ask.owed()
    (checkout / PROVEN[0] / "new.py").write_text("")
    ask.proved(proof)
    assert list(ROWS) == ask.owed()[0]


def test_what_the_lanes_do_not_prove_owes_nothing(ask: Ask, checkout: Path) -> None:
    ask.proved(ask.owed()[1])
    (checkout / "README.md").write_text("new")
    assert [ALWAYS] == ask.owed()[0]
