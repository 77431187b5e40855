"""`explain`, `diff` and `plan` of real servers: what is asked when a start failed, and of starts that went well."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lanes.build import Lane
from lanes.rows import ROWS
from lanes.runs import Run, Served, Setting, Walked, fail_once, lose_a_rank, walk
from lanes.ways import Way
from sglang_probe.explain.diff.compare import PARTS_ON_A_CPU
from sglang_probe.explain.diff.sentences import NOTHING, NOTHING_COUNTS
from sglang_probe.figures import GIB, fraction, gib

Told = Callable[..., tuple[int, dict[str, Any]]]
Failing = Callable[[str], Run]
Timeline = Callable[[Path], dict[str, Any]]

pytestmark = pytest.mark.lane
every_lane = pytest.mark.parametrize("version", ROWS)
one_lane = pytest.mark.parametrize("version", ["0.5.14"])
PRINTED = re.compile(r"minimum viable = .* = ([\d.]+)\)")
"""SGLang's own minimum, in the message of releases that have one."""
FEW = ("--max-total-tokens", "4096")
"""A pool on the CPU is filled with zeros: without a cap it would take the host's memory."""


def findings(told: Told, run: Run) -> tuple[int, list[dict[str, Any]]]:
    """Return the exit code of `explain`, and its findings, the leading one first."""
    code, said = told("explain", run.directory)
    (explained,) = said["runs"]
    return code, explained["findings"]


def budgets(read: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any], int]]:
    """Yield each rank's label, the terms of its budget and the tokens that its pool has, of a timeline."""
    for process in read["processes"]:
        for worker in process["workers"]:
            yield process["label"], worker["budget"], worker["kv"] and worker["kv"]["tokens"]


def tokens(terms: dict[str, Any], at: float, token: int) -> int:
    """Compute SGLang's formula, in its own order: all lanes' models have no deductions and pages of one token."""
    rest = terms["available_bytes"] / GIB - terms["pre_load_bytes"] / GIB * (1 - at)
    return int(rest * GIB) // token


@every_lane
def test_weights_that_exceed_the_budget_lead_in_every_wording_with_terms_that_re_add(
    version: str, nothing_left: Failing, told: Told, timeline: Timeline
) -> None:
    code, (first, *others) = findings(told, nothing_left(version))
    ((_, budget, _),) = budgets(timeline(nothing_left(version).directory))
    terms = (budget["available_bytes"], -budget["slack_bytes"], *(-size for size in budget["deductions"].values()))
    available, pre_load = gib(budget["available_bytes"]), gib(budget["pre_load_bytes"])

    assert (1, "weights_exceed_budget", "error", "certain") == (
        code, first["rule"], first["severity"], first["confidence"])  # fmt: skip
    assert "error" not in {one["severity"] for one in others}
    assert budget["verified"] is True
    assert budget["rest_bytes"] < 0
    assert abs(sum(terms) - budget["rest_bytes"]) < len(terms)
    assert {name: budget[name] for name in first["numbers"] if name in budget and name != "bytes_per_token"} == {
        name: value for name, value in first["numbers"].items() if name in budget and name != "bytes_per_token"
    }
    assert first["formula"].startswith(
        f"rest = {available} - {pre_load} x (1 - {fraction(budget['mem_fraction_static'])})"
        f" = {gib(budget['rest_bytes'])} GiB; minimum viable fraction = 1 - {available} / {pre_load} ="
    )


@every_lane
def test_the_minimum_viable_fraction_is_the_one_that_sglang_prints(
    version: str, nothing_left: Failing, told: Told
) -> None:
    numbers = findings(told, nothing_left(version))[1][0]["numbers"]
    own = 1 - numbers["available_bytes"] / numbers["pre_load_bytes"]
    printed = set(PRINTED.findall(nothing_left(version).stderr))

    assert own == pytest.approx(numbers["minimum_viable_fraction"], abs=1e-12)
    assert bool(printed) == (numbers["minimum_viable_fraction_printed"] is not None)
    assert printed <= {f"{own:.4f}"}


@one_lane
def test_a_server_started_with_the_fraction_that_the_lever_names_starts(
    version: str,
    nothing_left: Failing,
    told: Told,
    lane: Callable[[str], Lane],
    settings: dict[str, Setting],
    tmp_path: Path,
    timeline: Timeline,
) -> None:
    lever = findings(told, nothing_left(version))[1][0]["lever"]
    assert ("--mem-fraction-static", True) == (lever["flag"], lever["enough"])
    flags = (*settings["nothing left"].flags, lever["flag"], str(lever["value"]), *FEW)
    levered = Way("the lever", (version,), " ".join(flags), until="started")

    read = timeline(walk(lane(version), levered, settings["probed"], tmp_path).directory)
    ((_, budget, built),) = budgets(read)
    assert ("ready", lever["value"], True) == (read["outcome"], budget["mem_fraction_static"], budget["verified"])
    assert int(FEW[1]) == built


@every_lane
def test_of_two_starts_that_differ_in_a_flag_the_flag_is_named_and_nothing_else(
    version: str, served: Served, told: Told
) -> None:
    code, said = told("diff", served(version, 2, "probed").directory, served(version, 2, "run").directory)

    assert code == 0
    assert ["--mem-fraction-static"] == [row["key"] for row in said["provenance"] if row["differs"]]
    assert "--mem-fraction-static" == said["experiment"]["key"]
    assert all(sentence.startswith("--mem-fraction-static 0.1 -> 0.05") for sentence in said["says"])


@every_lane
def test_on_a_cpu_no_cost_is_told_of_two_starts(version: str, served: Served, told: Told) -> None:
    said = told("diff", served(version, 2, "probed").directory, served(version, 2, "run").directory)[1]
    steps = [step for rank in said["ranks"] for step in rank["steps"]]

    assert [] == [step for step in steps if any(cost is not None for cost in step["cost_bytes"])]
    assert [] == [row for rank in said["ranks"] for row in rank["ledger"]]
    assert {None} == {said["experiment"][name] for name in said["experiment"] if name.startswith("delta_")
                      and name != "delta_ready_s"}  # fmt: skip
    assert "GiB" not in "".join(said["says"])
    assert any("on a CPU" in note for note in said["notes"])


def nothing_differs(said: dict[str, Any]) -> bool:
    """Say whether a diff found that nothing that counts differs."""
    counts = [row for row in said["provenance"] if row["differs"] and row["counts"]]
    return not counts and said["experiment"] is None and set(said["says"]) <= {NOTHING, NOTHING_COUNTS}


@every_lane
def test_a_start_differs_in_nothing_from_itself(version: str, served: Served, told: Told) -> None:
    directory = served(version, 2, "probed").directory
    assert nothing_differs(told("diff", directory, directory)[1])


@pytest.mark.parametrize("version", ["0.5.23"])
def test_a_server_started_twice_the_second_time_by_the_newer_command_differs_in_nothing_that_counts(
    version: str, served: Served, walked: Walked, told: Told
) -> None:
    first, second = served(version, 1, "probed").directory, walked(version, "sglang serve").directory
    assert nothing_differs(told("diff", first, second)[1])


@every_lane
def test_of_a_start_that_failed_and_one_that_did_not_the_fraction_explains_the_outcome(
    version: str, served: Served, nothing_left: Failing, told: Told
) -> None:
    said = told("diff", served(version, 1, "probed").directory, nothing_left(version).directory)[1]
    explaining = [cause for cause in said["causes"] if cause["explains"]]

    assert "fraction" == explaining[0]["part"]
    assert PARTS_ON_A_CPU in said["notes"]
    assert {"fraction", "weights"} >= {cause["part"] for cause in explaining}  # the tiny model would fit
    assert said["arithmetic"]["delta_bytes"] == sum(
        piece["delta_bytes"] for piece in said["arithmetic"]["pieces"] if piece["of"] is None
    )


@every_lane
def test_a_start_planned_from_itself_is_exact(version: str, served: Served, told: Told) -> None:
    directory = served(version, 2, "probed").directory
    code, plan = told("plan", directory, "--against", directory)

    assert (0, True, []) == (code, plan["replays"], plan["changes"])
    assert {0, None} == {row["error"] for row in plan["against"]}
    (row,) = [row for row in plan["against"] if row["name"] == "tokens"]
    assert row["measured"] == served(version, 2, "probed").info["max_total_num_tokens"]
    assert row["predicted"] == row["measured"]


@every_lane
@pytest.mark.parametrize(("this", "other"), [("probed", "run"), ("run", "probed")])
def test_a_plan_is_off_by_nothing_but_the_host_s_memory_that_moved(
    version: str, this: str, other: str, served: Served, told: Told, timeline: Timeline
) -> None:
    runs = [served(version, 2, how) for how in (this, other)]
    code, plan = told("plan", runs[0].directory, "--against", runs[1].directory)
    known = [{label: terms for label, terms, _ in budgets(timeline(run.directory))} for run in runs]
    own, others = known[0][plan["run"]["rank"]], known[1][plan["other"]["rank"]]
    against = {row["name"]: row for row in plan["against"]}
    at, token = others["mem_fraction_static"], against["bytes_per_token"]["measured"]

    assert (0, ["--mem-fraction-static"]) == (code, [change["flag"] for change in plan["changes"]])
    assert tokens(own, at, token) == against["tokens"]["predicted"]
    assert tokens(others, at, token) == against["tokens"]["measured"] == runs[1].info["max_total_num_tokens"]


@one_lane
def test_a_rank_that_was_killed_is_not_memory(
    version: str, lane: Callable[[str], Lane], settings: dict[str, Setting], tmp_path: Path, told: Told
) -> None:
    run, pid = lose_a_rank(lane(version), settings["probed"], tmp_path, "weights.load", 1)
    code, (first, *others) = findings(told, run)

    assert (1, "not_memory", ["TP1"]) == (code, first["rule"], first["ranks"])
    assert f"TP1 (pid {pid}) ended in weights.load without an exception" in first["says"]
    assert "GPU" not in first["says"]
    assert [] == [one["rule"] for one in others if one["severity"] == "error"]


@pytest.mark.parametrize("version", ["0.4.6.post5"])
def test_an_argument_that_sglang_does_not_know_is_not_memory(
    version: str, lane: Callable[[str], Lane], settings: dict[str, Setting], tmp_path: Path, told: Told
) -> None:
    unknown = replace(settings["probed"], flags=("--no-such-argument",))
    code, (first, *_) = findings(told, fail_once(lane(version), 1, unknown, tmp_path))
    assert (1, "not_memory", "error") == (code, first["rule"], first["severity"])
    assert "before any rank began" in first["says"]


@every_lane
@pytest.mark.parametrize("tp", [1, 2])
def test_of_a_healthy_start_nothing_is_wrong(version: str, tp: int, served: Served, told: Told) -> None:
    code, found = findings(told, served(version, tp, "probed"))
    assert (0, {"info"}) == (code, {one["severity"] for one in found})
    assert "kv_cache" in {one["rule"] for one in found}
