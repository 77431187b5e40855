"""Whether starts with the probe differ from starts without it: pure, from what each start showed.

The rule of a row: every value seen with the probe was seen without it too. What differs between the starts without it
is the server's own noise, and the row says so. The seconds are compared by their spreads.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any

OURS = "sglang-probe: "
LINES_ALLOWED = 1
"""Lines that the probe may print in a whole start."""
SLOWER = 1.05
"""Starts are slower where the medians' ratio is over this and the halves lie further apart than either is spread."""
_PROGRESS = re.compile(r"it/s|s/it|\d+%\|")
_HEX = re.compile(r"\b(?:0x)?[0-9a-f]{8,}\b")
_NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e-?\d+)?")
_HEALTH = re.compile(r"GET /\S+ HTTP")


@dataclass
class Start:
    """What one start showed. Sizes are MiB where NVML told them and bytes where torch did."""

    probed: bool
    seconds: float | None = None
    kv_tokens: int | None = None
    answers: list[list[int]] = field(default_factory=list)
    """The tokens generated for each prompt."""
    used_mib: list[int] | None = None
    """Of each card, once ready; None without NVML, as in the next three."""
    process_mib: dict[str, int | None] | None = None
    listed: list[str] | None = None
    """Titles of all processes that NVML ever listed during the start."""
    contexts: list[str] | None = None
    """Those of them that are no schedulers."""
    torch: dict[str, dict[str, int]] | None = None
    """Per scheduler and statistic of torch's allocator; None where torch has no CUDA."""
    stdout: list[str] = field(default_factory=list)
    stderr: list[str] = field(default_factory=list)
    read_in_capture: list[str] = field(default_factory=list)
    """Events that carry a reading from inside a graph's capture."""
    captures: int = 0
    """Graphs that its schedulers captured."""
    events: int = 0


@dataclass(frozen=True)
class Row:
    """One line of the table. `same` is None where it could not be measured, or is told and not judged."""

    what: str
    without: str
    with_probe: str
    same: bool | None
    note: str = ""


def compare(starts: Sequence[Start]) -> list[Row]:
    """Return the table's rows for at least one start of each half."""
    bare = [start for start in starts if not start.probed]
    probed = [start for start in starts if start.probed]
    if not bare or not probed:
        raise ValueError("a comparison needs at least one start with the probe and one without")
    rows = [_row("max_total_num_tokens", bare, probed, "kv_tokens")]
    rows += [
        _judged(f"tokens of prompt {number + 1}", *(_answers(half, number) for half in (bare, probed)))
        for number in range(len(bare[0].answers))
    ]
    rows += [
        _row("NVML, MiB per process", bare, probed, "process_mib"),
        _row("NVML, MiB used per card", bare, probed, "used_mib"),
        _row("processes NVML ever listed", bare, probed, "listed"),
        _row("contexts beside the schedulers", bare, probed, "contexts"),
        *_torch_rows(bare, probed),
        _cost_row(bare, probed),
        *_text_rows(bare, probed),
        _capture_row(probed),
        _seconds_row(bare, probed),
    ]
    return rows


def differs(rows: Iterable[Row]) -> bool:
    """Tell whether any row was judged and is not the same."""
    return any(row.same is False for row in rows)


def document(rows: Sequence[Row], starts: Sequence[Start], **more: Any) -> dict[str, Any]:
    """Return everything as JSON."""
    return {
        "schema": "observer/1.0",
        "differs": differs(rows),
        **more,
        "rows": [asdict(row) for row in rows],
        "starts": [asdict(start) for start in starts],
    }


def shape(line: str) -> str:
    """Return a line of a log without what differs between any two starts: times, numbers, addresses."""
    return _NUMBER.sub("N", _HEX.sub("H", line.strip()))


def shapes(lines: Iterable[str]) -> set[str]:
    """Return the shapes of a log's lines; progress bars and our own questions are left out."""
    return {shape(line) for line in lines if line.strip() and not _PROGRESS.search(line) and not _HEALTH.search(line)}


def read_in_captures(events: Iterable[Mapping[str, Any]], captures: Sequence[Sequence[int]]) -> list[str]:
    """Return the events of one process whose reading was taken while it captured a graph.

    `captures` are pairs of monotonic ns. A `begin` is written right after its `before` was read, every other event
    right after its `after`.
    """
    found = []
    for event in events:
        reading = event.get("before" if event.get("kind") == "begin" else "after") or {}
        captured = any(begin <= event["mono_ns"] <= end for begin, end in captures)
        if captured and any(value is not None for value in reading.values()):
            found.append(str(event["event"]))
    return found


def _row(what: str, bare: Sequence[Start], probed: Sequence[Start], name: str) -> Row:
    return _judged(what, [getattr(start, name) for start in bare], [getattr(start, name) for start in probed])


def _judged(what: str, bare: Sequence[Any], probed: Sequence[Any]) -> Row:
    if any(value is None for value in (*bare, *probed)):
        return Row(what, _some(bare), _some(probed), None, "not measured here")
    without = {_text(value) for value in bare}
    note = "" if len(without) == 1 else "differs without the probe too"
    return Row(what, _some(bare), _some(probed), {_text(value) for value in probed} <= without, note)


def _answers(half: Sequence[Start], number: int) -> list[list[int] | None]:
    return [start.answers[number] if number < len(start.answers) else None for start in half]


def _torch_rows(bare: Sequence[Start], probed: Sequence[Start]) -> list[Row]:
    keys = sorted({key for start in (*bare, *probed) for stats in (start.torch or {}).values() for key in stats})
    if not keys:
        return [Row("torch's allocator", "-", "-", None, "not measured here")]
    rows = []
    for key in keys:
        halves = [[_of_key(start, key) for start in half] for half in (bare, probed)]
        row = _judged(f"torch {key}", *halves)
        told_only = Row(row.what, row.without, row.with_probe, None, "told, not judged: it counts idle steps too")
        rows.append(told_only if key.startswith("allocation.") else row)
    return rows


def _of_key(start: Start, key: str) -> dict[str, int] | None:
    return {title: stats[key] for title, stats in start.torch.items()} if start.torch else None


def _cost_row(bare: Sequence[Start], probed: Sequence[Start]) -> Row:
    """GPU memory used by the probe: the medians' difference over all processes, by NVML."""
    sums = [[_sum_mib(start) for start in half] for half in (bare, probed)]
    if any(one is None for half in sums for one in half):
        return Row("GPU memory used by the probe", "-", "-", None, "not measured here")
    without, with_probe = (median(one for one in half if one is not None) for half in sums)
    cost = f"{with_probe - without:+.0f} MiB"
    return Row("GPU memory used by the probe", f"{without:.0f} MiB in all", f"{with_probe:.0f} MiB in all",
               with_probe <= without, cost)  # fmt: skip


def _sum_mib(start: Start) -> int | None:
    held = None if start.process_mib is None else list(start.process_mib.values())
    return None if not held or any(one is None for one in held) else sum(one for one in held if one is not None)


def _text_rows(bare: Sequence[Start], probed: Sequence[Start]) -> list[Row]:
    rows = []
    for name in ("stdout", "stderr"):
        said = [[line for line in getattr(start, name) if OURS in line] for start in probed]
        rest = [shapes(line for line in getattr(start, name) if OURS not in line) for start in probed]
        known = set().union(*(shapes(getattr(start, name)) for start in bare))
        added = sorted(set.intersection(*rest) - known)  # in every start with the probe, in none without
        allowed = LINES_ALLOWED if name == "stderr" else 0
        most = max(map(len, said))
        note = "; ".join([*said[0][:2], *added])[:400]
        lines = f"{most} of the probe's, {len(added)} kinds more"
        rows.append(Row(f"lines added to {name}", "-", lines, most <= allowed and not added, note))
    return rows


def _capture_row(probed: Sequence[Start]) -> Row:
    what = "readings while a graph is captured"
    read = [event for start in probed for event in start.read_in_capture]
    seen, captures = (sum(getattr(start, name) for start in probed) for name in ("events", "captures"))
    if not captures:
        return Row(what, "-", "-", None, "no graph was captured")
    return Row(what, "-", f"{len(read)} in {seen} events, {captures} captures", not read, ", ".join(read[:5]))


def _seconds_row(bare: Sequence[Start], probed: Sequence[Start]) -> Row:
    without, with_probe = (sorted(start.seconds for start in half if start.seconds is not None)
                           for half in (bare, probed))  # fmt: skip
    if not without or not with_probe:
        return Row("seconds until ready", "-", "-", None, "not measured here")
    ratio = median(with_probe) / median(without)
    spread = max(half[-1] - half[0] for half in (without, with_probe))
    slower = with_probe[0] - without[-1] > spread and ratio > SLOWER
    repeated = min(len(without), len(with_probe)) > 1
    bare_s, probed_s = (f"{median(half):.2f} ({half[0]:.2f} to {half[-1]:.2f})" for half in (without, with_probe))
    note = f"ratio of medians {ratio:.3f}" + ("" if repeated else "; one pair says nothing of noise")
    return Row("seconds until ready", bare_s, probed_s, not slower if repeated else None, note)


def _some(values: Sequence[Any]) -> str:
    """Return the values, each once."""
    texts = list(dict.fromkeys("?" if value is None else _text(value) for value in values))
    return " | ".join(texts)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)
