"""The comparison of starts without and with the probe: what counts as a difference, and what as the server's noise."""

from __future__ import annotations

from typing import Any

import pytest

from bench.comparison import OURS, Start, compare, differs, document, read_in_captures, shapes

STATS = {"allocated_bytes.all.peak": 4096, "allocation.all.allocated": 100}


def start(probed: bool, **other: Any) -> Start:
    told: dict[str, Any] = {
        "seconds": 20.0,
        "kv_tokens": 3979547,
        "answers": [[1, 2], [3, 4]],
        "used_mib": [131900],
        "process_mib": {"sglang::scheduler_TP0 on GPU 0": 131220},
        "listed": ["sglang::scheduler_TP0"],
        "contexts": [],
        "torch": {"sglang::scheduler_TP0 on 0": dict(STATS)},
        "stderr": ["[2026-11-29 19:53:38 TP0] Load weight end. elapsed=0.13 s"],
        "captures": 4,
        "events": 76,
    }
    return Start(probed, **(told | other))


def different(*starts: Start) -> list[str]:
    return [row.what for row in compare(starts) if row.same is False]


def test_equal_starts_do_not_differ() -> None:
    rows = compare([start(False), start(True), start(True), start(False)])
    assert not differs(rows)
    assert [row.what for row in rows if row.same is None] == ["torch allocation.all.allocated"]
    assert all(row.same for row in rows if row.what == "seconds until ready")


@pytest.mark.parametrize(
    ("name", "value", "rows"),
    [
        ("kv_tokens", 3979546, ["max_total_num_tokens"]),
        ("answers", [[1, 2], [3, 5]], ["tokens of prompt 2"]),
        ("used_mib", [131901], ["NVML, MiB used per card"]),
        ("process_mib", {"sglang::scheduler_TP0 on GPU 0": 131221},
         ["NVML, MiB per process", "GPU memory used by the probe"]),
        ("listed", ["launcher", "sglang::scheduler_TP0"], ["processes NVML ever listed"]),
        ("contexts", ["launcher"], ["contexts beside the schedulers"]),
        ("torch", {"sglang::scheduler_TP0 on 0": {**STATS, "allocated_bytes.all.peak": 4608}},
         ["torch allocated_bytes.all.peak"]),
        ("read_in_capture", ["sglang.memory.kv.pool.end"], ["readings while a graph is captured"]),
    ],
)  # fmt: skip
def test_what_is_other_with_the_probe_differs(name: str, value: Any, rows: list[str]) -> None:
    assert rows == different(start(False), start(True, **{name: value}))


def test_what_differs_without_the_probe_too_is_noise() -> None:
    rows = compare([start(False, kv_tokens=1), start(False, kv_tokens=2), start(True, kv_tokens=2)])
    row = rows[0]
    assert (row.same, row.note) == (True, "differs without the probe too")


@pytest.mark.parametrize(
    ("without", "with_probe", "same"),
    [
        ((20.0, 20.2), (21.5, 21.6), False),
        ((20.0, 20.2), (20.3, 20.6), True),  # less than 5 %
        ((20.0, 23.0), (24.0, 25.0), True),  # no further apart than the starts without it are
        ((20.0, 20.2), (18.0, 18.1), True),
        ((20.0,), (30.0,), None),  # one pair says nothing of noise
    ],
)
def test_seconds_are_judged_by_their_spread(
    without: tuple[float, ...], with_probe: tuple[float, ...], same: bool | None
) -> None:
    halves = [start(False, seconds=one) for one in without] + [start(True, seconds=one) for one in with_probe]
    assert [row.same for row in compare(halves) if row.what == "seconds until ready"] == [same]


def test_one_line_of_the_probe_on_stderr_is_allowed_and_no_other() -> None:
    logs = start(False).stderr
    line = f"{OURS}recording to runs/x"
    assert different(start(False), start(True, stderr=[*logs, line])) == []
    assert different(start(False), start(True, stderr=[*logs, line, line])) == ["lines added to stderr"]
    assert different(start(False), start(True, stdout=[line])) == ["lines added to stdout"]
    assert different(start(False), start(True, stderr=[*logs, "Exception ignored in: x"])) == ["lines added to stderr"]


def test_a_line_that_only_one_start_with_the_probe_prints_is_noise() -> None:
    logs = start(False).stderr
    assert different(start(False), start(True, stderr=[*logs, "a warning now and then"]), start(True)) == []


def test_lines_that_differ_in_numbers_and_addresses_have_one_shape() -> None:
    lines = "[19:53:38] elapsed=0.13 s at 0x7f3a12345678", "[20:01:02] elapsed=11 s at 0x7faabbccddee"
    assert len(shapes(lines)) == 1
    assert shapes(["  50%|## | 2/4 [00:01<00:01, 2.1it/s]", "", 'GET /health HTTP/1.1" 503']) == set()


def test_without_a_gpu_nothing_is_claimed_of_it() -> None:
    blind = {"used_mib": None, "process_mib": None, "listed": None, "contexts": None, "torch": None, "captures": 0}
    rows = compare([start(False, **blind), start(True, **blind)])
    assert not differs(rows)
    assert {row.what for row in rows if row.note in ("not measured here", "no graph was captured")} == {
        "NVML, MiB per process",
        "NVML, MiB used per card",
        "processes NVML ever listed",
        "contexts beside the schedulers",
        "torch's allocator",
        "GPU memory used by the probe",
        "readings while a graph is captured",
    }


def test_one_half_alone_is_no_comparison() -> None:
    with pytest.raises(ValueError, match="at least one start with the probe and one without"):
        compare([start(False)])


def test_the_document_says_whether_anything_differs() -> None:
    starts = [start(False), start(True, kv_tokens=1)]
    told = document(compare(starts), starts)
    assert told["differs"] is True
    assert [one["kv_tokens"] for one in told["starts"]] == [3979547, 1]


READ, EMPTY = {"device_free_bytes": 1, "host_rss_bytes": 2}, {"device_free_bytes": None, "host_rss_bytes": None}


@pytest.mark.parametrize(
    ("kind", "at", "before", "after", "found"),
    [
        ("begin", 15, READ, None, True),
        ("begin", 15, EMPTY, None, False),
        ("begin", 25, READ, None, False),
        ("end", 15, READ, EMPTY, False),  # its `before` was read at its begin
        ("end", 15, EMPTY, READ, True),
        ("sample", 35, None, READ, True),
    ],
)
def test_a_reading_counts_as_inside_a_capture_by_when_it_was_taken(
    kind: str, at: int, before: Any, after: Any, found: bool
) -> None:
    event = {"event": "e", "kind": kind, "mono_ns": at, "before": before, "after": after}
    assert read_in_captures([event], [[10, 20], [30, 40]]) == ["e"] * found
