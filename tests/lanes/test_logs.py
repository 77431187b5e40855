"""Logs of real servers: what they say alone, and beside the events of the same start."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lanes.rows import ROWS
from lanes.runs import Run, Served, Walked
from lanes.ways import WAYS
from sglang_probe.figures import GIB

Told = Callable[..., tuple[int, dict[str, Any]]]
Timeline = Callable[[Path], dict[str, Any]]

pytestmark = pytest.mark.lane
every_lane = pytest.mark.parametrize("version", ROWS)
AVAILABLE = re.compile(r"TP(\d)\] Load weight end\.[^[\n]*avail mem=([\d.]+) GB")
MINIMUM = re.compile(r"minimum viable = .* = ([\d.]+)\)")


def log_of(run: Run, folder: Path) -> Path:
    """Write what a server printed as its users have it: both streams in one file."""
    path = folder / "server.log"
    path.write_text(run.stderr + run.stdout, encoding="utf-8")
    return path


def ranks_of(read: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the ranks of a run."""
    return (process for process in read["processes"] if process["label"] is not None)


@every_lane
def test_a_log_alone_tells_outcome_ranks_tokens_and_what_was_free_as_it_was_printed(
    version: str, served: Served, timeline: Timeline, tmp_path: Path
) -> None:
    run = served(version, 2, "probed")
    read = timeline(log_of(run, tmp_path))
    events = timeline(run.directory)
    printed = {f"TP{rank}": float(figure) for rank, figure in AVAILABLE.findall(run.stderr)}
    loads = {
        process["label"]: step["free_bytes"]
        for process in ranks_of(read)
        for step in process["steps"]
        if step["phase"] == "weights.load"
    }

    assert ("log", "ready") == (read["source"], read["outcome"])
    assert "TP0" in printed  # some releases print weights and pools on the first rank alone
    assert {"TP0", "TP1"} == {process["label"] for process in ranks_of(read)}
    assert {label: round(figure * GIB) for label, figure in printed.items()} == loads
    assert [one["workers"][0]["kv"]["tokens"] for one in ranks_of(events)] == [
        one["workers"][0]["kv"]["tokens"] for one in ranks_of(read)
    ]
    assert events["provenance"]["effective"]["mem_fraction_static"] == (
        read["provenance"]["effective"]["mem_fraction_static"]
    )


@every_lane
def test_a_log_beside_the_events_of_its_start_is_merged_and_agrees_with_them(
    version: str, served: Served, told: Told, tmp_path: Path
) -> None:
    run = served(version, 2, "probed")
    (read,) = told("timeline", run.directory, log_of(run, tmp_path))[1]["runs"]
    check = read["log_check"]

    assert "both" == read["source"]
    assert [] == check["disagreements"]
    assert check["compared"] == check["agree"] + len(check["explained"])
    assert check["agree"] > len(check["explained"])  # on a CPU the host's memory moves between two readings
    assert check["arguments_compared"] > 100


@every_lane
def test_a_log_of_another_start_is_not_merged(version: str, served: Served, told: Told, tmp_path: Path) -> None:
    other = log_of(served(version, 2, "run"), tmp_path)
    runs = told("timeline", served(version, 2, "probed").directory, other)[1]["runs"]
    assert ["events", "log"] == sorted(one["source"] for one in runs)


@every_lane
def test_the_log_of_a_start_that_left_nothing_leads_with_the_weights_and_sglangs_own_minimum(
    version: str, nothing_left: Callable[[str], Run], told: Told, tmp_path: Path
) -> None:
    run = nothing_left(version)
    code, said = told("explain", log_of(run, tmp_path))
    (explained,) = said["runs"]
    first = explained["findings"][0]
    printed = {float(figure) for figure in MINIMUM.findall(run.stderr)}

    assert ("failed", "kv.profile") == (explained["outcome"], explained["failed_phase"])
    assert (1, "weights_exceed_budget", "error") == (code, first["rule"], first["severity"])
    assert printed <= {first["numbers"]["minimum_viable_fraction_printed"]}
    assert first["lever"]["value"] > max({*printed, first["numbers"]["minimum_viable_fraction"]})


@pytest.mark.parametrize(
    ("version", "way"), [(version, name) for name, way in WAYS.items() if way.until != "ended" for version in way.lanes]
)
def test_drafts_windows_latent_caches_stages_and_replicas_are_told_apart_as_the_events_tell_them(
    version: str, way: str, walked: Walked, told: Told, tmp_path: Path
) -> None:
    run = walked(version, way)
    log = log_of(run, tmp_path)
    (read,) = told("timeline", run.directory, log)[1]["runs"]
    (alone,) = told("timeline", log)[1]["runs"]
    events = told("timeline", run.directory)[1]["runs"][0]

    assert ("both", []) == (read["source"], read["log_check"]["disagreements"])
    assert read["log_check"]["agree"] > 0
    assert pools(alone) == {rank: kinds for rank, kinds in pools(events).items() if rank[0] in labels(alone)}


def labels(read: dict[str, Any]) -> set[str]:
    """Return the labels of a run's ranks."""
    return {process["label"] for process in ranks_of(read)}


def pools(read: dict[str, Any]) -> dict[tuple[str, str], int]:
    """Return the tokens of each rank's models."""
    return {
        (process["label"], worker["worker"]): worker["kv"]["tokens"]
        for process in ranks_of(read)
        for worker in process["workers"]
        if worker["kv"] is not None
    }
