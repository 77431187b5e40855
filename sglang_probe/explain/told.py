"""SGLang's resolved arguments that findings and plans lean on; a value of another type than it must be is unknown."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, Final

from sglang_probe.explain.reserve import Knobs
from sglang_probe.explain.scaling import MIB, MOST_SIZES
from sglang_probe.explain.subject import Subject
from sglang_probe.timeline.model import Run

_DECODE: Final = re.compile(r"decode=PhaseConfig\(backend='(\w+)', max_bs=(\d{1,6})\b")
_DECODE_SIZES: Final = re.compile(r"decode=PhaseConfig\(backend='\w+', max_bs=\d+, bs=\[([\d, ]*)\]")
_PREFILL: Final = re.compile(r"prefill=PhaseConfig\(backend='(\w+)', max_bs=\d+, bs=\[([\d, ]*)\]")
MOST_RANKS: Final = 1 << 20


class Told:
    """The arguments of one run."""

    def __init__(self, run: Run) -> None:
        self.effective: dict[str, Any] = run.provenance.effective or {}
        self.graphs = str(self.effective.get("cuda_graph_config") or "")

    def count(self, *names: str, most: int = 1 << 62) -> int | None:
        """Return the first that is a positive whole number."""
        found = (positive(self.effective.get(name)) for name in names)
        return next((count for count in found if count is not None and count <= most), None)


def positive(value: object) -> int | None:
    """Return a positive whole number as it is."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def text(value: object) -> str | None:
    """Return a string that is not empty."""
    return value if isinstance(value, str) and value else None


def knobs_of(subject: Subject, told: Told, captured: Sequence[int]) -> Knobs | None:
    """Return what SGLang's default fraction hangs on; None where one of it is unknown. `captured`: sizes of graphs."""
    totals = [one.pre_load.nvml_total_bytes for one in subject.ranks if one.pre_load and one.pre_load.nvml_total_bytes]
    largest = largest_of(told, captured)
    if not totals or min(totals) < MIB or not largest:
        return None
    return knobs_on(float(Fraction(min(totals), MIB)), told, largest)


def knobs_on(card_mib: float, told: Told, largest: int) -> Knobs | None:
    """Return the same for a card and a largest batch size; None where the size of a chunk is not told."""
    prefill = told.count("chunked_prefill_size", "max_prefill_tokens")
    if prefill is None:
        return None
    return Knobs(
        card_mib=card_mib,
        prefill_tokens=prefill,
        max_bs=largest,
        tp=told.count("tp_size", most=MOST_RANKS) or 1,
        pp=told.count("pp_size", most=MOST_RANKS) or 1,
        dp=told.count("dp_size", most=MOST_RANKS) or 1,
        dp_attention=told.effective.get("enable_dp_attention") is True,
        prefill_graphs=_prefill_graphs(told),
        speculative=text(told.effective.get("speculative_algorithm")),
    )


def largest_of(told: Told, captured: Sequence[int]) -> int | None:
    """Return the largest batch size of the decode graphs: asked for, or captured."""
    decode = _DECODE.search(told.graphs)
    if decode:
        return int(decode[2])
    asked = told.count("cuda_graph_max_bs", "cuda_graph_max_bs_decode", most=MOST_SIZES)
    return asked or max(captured or sizes_of(told.effective.get("cuda_graph_bs")), default=None)


def decode_sizes(told: Told) -> tuple[int, ...]:
    """Return the batch sizes that SGLang resolved for its decode graphs; empty where it does not say."""
    found = _DECODE_SIZES.search(told.graphs)
    if found:
        return sizes_of([int(size) for size in found[1].split(",") if 0 < len(size.strip()) < 7])
    return sizes_of(told.effective.get("cuda_graph_bs"))


def _prefill_graphs(told: Told) -> int:
    found = _PREFILL.search(told.graphs)
    if found:
        return 0 if found[1] == "disabled" else len(found[2].split(","))
    sizes = told.effective.get("piecewise_cuda_graph_tokens")
    piecewise = told.effective.get("enable_piecewise_cuda_graph") is True
    return len(sizes) if piecewise and isinstance(sizes, list) else 0


def sizes_of(value: object) -> tuple[int, ...]:
    """Return a list of batch sizes; empty where it is none."""
    if not isinstance(value, list) or len(value) > MOST_SIZES:
        return ()
    known = tuple(size for size in value if isinstance(size, int) and not isinstance(size, bool) and size > 0)
    return known if len(known) == len(value) else ()
