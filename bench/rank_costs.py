"""What each rank paid for talking to the others, out of our own timeline's JSON, and a table of it by their number."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple

from bench.predicted import CLASSES, MIB, Predicted
from bench.sizes import SIZES

WORLD: Final = "world group"
PYNCCL: Final = "PyNcclCommunicator"
OTHERS: Final = "other communicators"
FAKE_GPUS: Final = "SGLANG_PROBE_FAKE_GPUS"
"""A variable that only the fakes' servers have."""


class Asked(NamedTuple):
    """What one instance of an all-reduce's class asked for, as the probe read it there."""

    name: str
    ranks: int
    """Of its group."""
    size: int


@dataclass(frozen=True)
class Paid:
    """One rank's costs in bytes, by communicator or class; None: not known. What was not built is not there."""

    ranks: int
    """How many there were."""
    taken: Mapping[str, int | None]
    asked: Sequence[Asked]


@dataclass
class Measured:
    """All ranks of all runs."""

    paid: list[Paid] = field(default_factory=list)
    runs: defaultdict[int, list[str]] = field(default_factory=lambda: defaultdict(list))
    """The names of the runs with so many ranks."""
    on: list[str] = field(default_factory=list)
    """Cards and versions, each once."""
    fake: bool = False
    real: bool = False

    def add(self, run: Mapping[str, Any]) -> None:
        """Take in one run of a timeline's JSON; one without ranks adds nothing."""
        ranks = [paid for process in run["processes"] if (paid := paid_by(process)) is not None]
        if not ranks:
            return
        self.paid += ranks
        self.runs[ranks[0].ranks].append(run["run_id"])
        told = run["provenance"]
        is_fake = FAKE_GPUS in (told["environment"] or {})
        self.fake, self.real = self.fake or is_fake, self.real or not is_fake
        cards = {process["device"]["name"] for process in run["processes"] if process["device"]}
        versions = told["versions"] or {}
        named = [*sorted(cards), f"SGLang {versions.get('sglang')}", f"NCCL {versions.get('nccl')}"]
        if (what := ", ".join(named)) not in self.on:
            self.on.append(what)

    def cell(self, row: str, ranks: int) -> str:
        """Return what a row came to with so many ranks, in MiB."""
        seen = [paid.taken for paid in self.paid if paid.ranks == ranks]
        sizes = [taken[row] for taken in seen if row in taken]
        if not sizes:
            return "none built" if seen and ranks == 1 else "not measured"
        known = [size for size in sizes if size is not None]
        if len(known) < len(sizes):
            return "unknown"
        span = dict.fromkeys((mib(min(known)), mib(max(known))))
        return " to ".join(span)


def paid_by(process: Mapping[str, Any]) -> Paid | None:
    """Return what a rank paid inside its distributed init; None for a process that had none."""
    init = next((step for step in process["steps"] if step["phase"] == "dist.init"), None)
    ranks = None if init is None else init["attributes"].get("world_size")
    if ranks is None:
        return None
    taken: dict[str, int | None] = {}
    asked = []
    for step in process["steps"]:
        row = row_of(step)
        if row is None:
            continue
        cost = step["self_delta_bytes"]
        before = taken.get(row, 0)
        taken[row] = None if cost is None or before is None else before - cost
        told = step["attributes"]
        if told.get("buffers") and all(buffer["bytes"] is not None for buffer in told["buffers"]):
            asked.append(Asked(row, told["world_size"], told["asked_bytes"]))
    return Paid(ranks, taken, asked)


def row_of(step: Mapping[str, Any]) -> str | None:
    """Return the row to which a step belongs; None where it is none of these, or built nothing."""
    told = step["attributes"]
    if step["phase"] == "allreduce.buffers":
        return None if told.get("disabled") else told.get("class")
    if step["phase"] != "dist.communicator":
        return None
    if str(told.get("group")).partition(":")[0] == "world":
        return WORLD
    if told.get("communicator") == PYNCCL:
        return None if told.get("disabled") else PYNCCL
    return OTHERS


def table(measured: Measured, sizes: Sequence[int] = SIZES) -> list[str]:
    """Return the lines of a Markdown table, MiB on each rank: what was measured beside what the formulas say."""
    how = "fake" if measured.fake else "measured"
    rows = [[f"{row}, {how}", *(measured.cell(row, size) for size in sizes)] for row in (WORLD, PYNCCL, OTHERS)]
    for name in (*CLASSES, *_of_no_formula(measured.paid)):
        foretold = [CLASSES[name](size) for size in sizes] if name in CLASSES else []
        if foretold:
            rows.append([f"{name} asks for, predicted", *(_foretold(one, "asked") for one in foretold)])
        if any(one is not None and one.taken is not None for one in foretold):
            rows.append([f"{name} takes, predicted", *(_foretold(one, "taken") for one in foretold)])
        rows.append([f"{name} took, {how}", *(measured.cell(name, size) for size in sizes)])
    heads = ["MiB on each rank", *map(_ranks, sizes)]
    return [f"| {' | '.join(cells)} |" for cells in (heads, ["---"] * len(heads), *rows)]


def sources(measured: Measured) -> list[str]:
    """Return the sentences that say where the measured figures are from, and which rank asked for something else."""
    if measured.fake:
        return ["FAKE GPUS: no figure of this table was measured on a card."]
    runs = [f"{_ranks(size)} in {', '.join(names)}" for size, names in sorted(measured.runs.items())]
    said = [f"Measured on {'; '.join(measured.on)}: {'; '.join(runs)}."] if runs else ["Nothing was measured."]
    return said + sorted(_astray(measured.paid))


def _astray(paid: Iterable[Paid]) -> set[str]:
    """Return where a class asked for another number of bytes than its formula says."""
    found = set()
    for name, ranks, size in (asked for one in paid for asked in one.asked):
        foretold = CLASSES[name](ranks) if name in CLASSES else None
        if foretold is not None and foretold.asked != size:
            found.add(f"With {ranks} ranks {name} asked for {size} B, and {foretold.asked} were predicted.")
    return found


def _of_no_formula(paid: Iterable[Paid]) -> list[str]:
    built = {name for one in paid for name in one.taken}
    return sorted(built - {WORLD, PYNCCL, OTHERS, *CLASSES})


def _foretold(one: Predicted | None, what: Literal["asked", "taken"]) -> str:
    size = None if one is None else getattr(one, what)
    return "none built" if one is None else "not known" if size is None else mib(size)


def _ranks(number: int) -> str:
    return f"{number} rank{'' if number == 1 else 's'}"


def mib(size: int) -> str:
    """Return bytes as MiB of two decimals."""
    return f"{size / MIB:.2f}"
