"""How a rank is called: `DP0 PP1 TP3`, only what has more than one; `TP0` when nothing has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from sglang_probe.timeline.model import Rank

_PARTS: Final = (("dp", "DP"), ("pp", "PP"), ("attn_cp", "ATTN_CP"), ("moe_dp", "MOE_DP"), ("tp", "TP"), ("ep", "EP"))


def label_of(rank: Rank | None) -> str | None:
    """Return a rank's label; None where the rank is not known."""
    if rank is None:
        return None
    named = [(prefix, getattr(rank, part)) for part, prefix in _PARTS]
    words = [f"{prefix}{part.rank}" for prefix, part in named if part is not None and part.size > 1]
    return " ".join(words) or "TP0"


def labels_of(hosts_and_ranks: Sequence[tuple[str, Rank | None]]) -> list[str | None]:
    """Return the labels of the processes of a run; one that occurs twice has its host in front."""
    labels = [label_of(rank) for _, rank in hosts_and_ranks]
    counts = Counter(labels)
    return [
        f"{host}:{label}" if label is not None and counts[label] > 1 else label
        for (host, _), label in zip(hosts_and_ranks, labels, strict=True)
    ]
