"""`sglang-probe plan` as a user runs it."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sglang_probe.testing import FakeServer, story
from sglang_probe.testing.story import MEM_FRACTION_STATIC, arguments
from tests.explain.plan.making import CAR, DATA

Probe = Callable[..., "subprocess.CompletedProcess[str]"]
Write = Callable[..., Path]
Words = Callable[..., list[str]]
LOWFRAC = DATA / "h200-x2-sglang-0.5.14" / "lowfrac"
NOCAR = DATA / "h200-x2-sglang-0.5.14" / "nocar"
ENOUGH = 0.80
"""The fraction that the story's server starts with."""


def flat(text: str) -> str:
    return re.sub(r"\s+", " ", text)


def planned(probe: Probe, *args: str | Path) -> dict[str, Any]:
    """Return the numbers of a plan, by name."""
    done = probe("plan", *args, "--format", "json")
    made = json.loads(done.stdout)
    assert made["schema"] == "plan/1.0"
    return {one["name"]: one for one in made["numbers"]}


@pytest.mark.parametrize("release", ["0.5.9", "0.5.14"])
def test_the_story_is_answered(probe: Probe, words_of: Words, tmp_path: Path, release: str) -> None:
    def start(name: str, fraction: float) -> Path:
        prefix = words_of("run", "--dir", tmp_path / "runs", "--run-id", name, "--")
        (tmp_path / name).mkdir()
        FakeServer(tmp_path / name, story(release), release=release, arguments=arguments(fraction), prefix=prefix).run()
        return tmp_path / "runs" / name

    failed, started = start("failed", MEM_FRACTION_STATIC), start("started", ENOUGH)

    asked = probe("plan", failed)
    assert asked.returncode == 1
    assert "the KV cache is empty by 20.603 GiB: SGLang refuses to start" in flat(asked.stdout)
    assert "It has room from 0.7692 on" in flat(asked.stdout)
    advice = re.search(r"do: --mem-fraction-static ([\d.]+)", probe("explain", failed).stdout)
    assert advice is not None
    assert f"Try {float(advice[1]):.3f}: " in flat(asked.stdout)
    assert f"- --mem-fraction-static {float(advice[1]):.3f}: " in flat(asked.stdout)
    assert "the least is 0.7692 (" in flat(asked.stdout) or release != "0.5.9"
    told = probe("plan", failed, "--mem-fraction-static", str(ENOUGH), "--like", started)
    assert told.returncode == 0
    measured, predicted = (
        planned(probe, started),
        planned(probe, failed, "--mem-fraction-static", str(ENOUGH), "--like", started),
    )
    assert measured["tokens"]["run"] == predicted["tokens"]["planned"]
    assert measured["free_bytes"]["run"] == predicted["free_bytes"]["planned"]
    wish = probe("plan", failed, "--tokens", "400,000", "--free", "6", "--like", started)
    assert wish.returncode == 1
    assert "No fraction below 1 does what is wished" in flat(wish.stdout)
    assert re.search(r"--tokens 400,000 does not hold: .* the cache is short by [\d.]+ GiB", flat(wish.stdout))
    assert "--kv-cache-dtype fp8_e5m2: as many GiB, smaller tokens" in flat(wish.stdout)


def test_a_solved_fraction_planned_forwards_holds(probe: Probe) -> None:
    solved = planned(probe, DATA / CAR, "--tokens", "400000", "--free", "6")
    fraction = solved["mem_fraction_static"]

    done = probe(
        "plan", DATA / CAR, "--mem-fraction-static", str(fraction["planned"]), "--tokens", "400000", "--free", "6"
    )

    assert fraction["rule"] == "solved"
    assert done.returncode == 0
    assert "--tokens 400,000 holds" in flat(done.stdout)
    assert "--free 6.000 holds" in flat(done.stdout)


def test_a_given_fraction_that_is_too_low_for_the_wish_says_by_how_much_and_what_it_takes(probe: Probe) -> None:
    done = probe("plan", DATA / CAR, "--mem-fraction-static", "0.1", "--tokens", "400000")
    needed = planned(probe, DATA / CAR, "--tokens", "400000")["mem_fraction_static"]["planned"]

    assert done.returncode == 1
    assert "--tokens 400,000 does not hold" in flat(done.stdout)
    assert f"It takes a fraction from {needed} (" in flat(done.stdout)


def test_against_prints_predicted_beside_measured_with_the_error(probe: Probe) -> None:
    done = probe("plan", DATA / CAR, "--against", NOCAR)

    assert done.returncode == 0
    assert re.search(r"^what .* predicted +measured +error$", done.stdout, re.MULTILINE)
    assert re.search(r"^tokens +([\d,]+) +\1 +0$", done.stdout, re.MULTILINE)


def test_a_run_that_failed_before_the_bytes_of_a_token_needs_them(probe: Probe) -> None:
    done = probe("plan", LOWFRAC, "--tokens", "1000")

    assert done.returncode == 2
    assert done.stdout == ""
    assert re.fullmatch(r"sglang-probe plan: .* --token-bytes N, or --like PATH .*\n", done.stderr)
    assert planned(probe, LOWFRAC, "--mem-fraction-static", "0.5", "--token-bytes", "32768")["tokens"]["planned"]


def test_a_run_without_a_budget_cannot_be_planned_and_says_where_it_ended(probe: Probe) -> None:
    done = probe("plan", DATA / "h200-x2-sglang-0.5.14-failures" / "oom-weights")

    assert done.returncode == 2
    assert "run oom-weights failed while its weights were loaded (weights.load)" in done.stderr
    assert "plan from a run of the same server that got further, or name it with --like PATH" in done.stderr
    assert done.stderr.count("\n") == 1


def test_several_runs_are_named_and_one_has_to_be_chosen(probe: Probe) -> None:
    done = probe("plan", DATA / CAR, NOCAR)

    assert done.returncode == 2
    assert re.search(r"holds 2 runs: .*; a plan is made from one", done.stderr)


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("--mem-fraction-static", "1.2"),
        ("--tokens", "-3"),
        ("--tokens", "many"),
        ("--free", "nan"),
        ("--tp", "0"),
        ("--kv-cache-dtype", "complex"),
        ("--page-size", "1" * 30),
        ("--like", "/nowhere"),
    ],
)
def test_what_is_no_value_is_said_in_one_line_with_the_value(probe: Probe, flag: str, value: str) -> None:
    done = probe("plan", DATA / CAR, flag, value)

    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert value in done.stderr


def test_a_flag_that_repeats_the_run_is_said_to_change_nothing(probe: Probe) -> None:
    done = probe("plan", DATA / CAR, "--tp", "2", "--without-tenants", "--no-draft")

    for flag in ("--tp", "--no-draft"):
        assert f"{flag} changes nothing: the run has it so" in flat(done.stdout)
    assert "--without-tenants changes nothing: nobody else is seen on this run's cards" in flat(done.stdout)
    assert "with nothing changed" in flat(done.stdout)


def test_a_made_up_failure_of_one_rank_is_planned(probe: Probe, write_run: Write, tmp_path: Path) -> None:
    done = probe("plan", write_run(tmp_path / "run"))

    assert done.returncode == 1
    assert "It has room from 0.7692 on" in flat(done.stdout)


def test_the_help_names_every_flag(probe: Probe) -> None:
    told = probe("plan", "--help").stdout

    for flag in ("--tokens", "--concurrency", "--free", "--like", "--against", "--quantization", "--kv-heads"):
        assert flag in told
