"""Which ranks form which group, in the order in which SGLang nests the dimensions."""

from __future__ import annotations

Groups = list[list[int]]


def ranks_of_groups(
    world: int, tp: int, attn_dp: int, attn_cp: int, moe_ep: int, moe_dp: int
) -> dict[str, Groups]:
    """Return the groups of every kind; attention nests DP > CP > TP, the experts DP > EP > TP."""
    stages = range(0, world, tp)
    attn_tp = tp // attn_cp // attn_dp
    moe_tp = tp // moe_ep // moe_dp
    return {
        "tp": [list(range(stage, stage + tp)) for stage in stages],
        "attn_cp": _strided(stages, tp, attn_tp, attn_cp),
        "attention_tp": _strided(stages, tp, 1, attn_tp),
        "moe_dp": _strided(stages, tp, moe_tp * moe_ep, moe_dp),
        "moe_ep": _strided(stages, tp, moe_tp, moe_ep),
        "moe_tp": _strided(stages, tp, 1, moe_tp),
        "pp": [list(range(rank, world, tp)) for rank in range(tp)],
    }


def _strided(stages: range, tp: int, stride: int, size: int) -> Groups:
    groups = []
    for stage in stages:
        for block in range(stage, stage + tp, stride * size):
            groups += [list(range(block + offset, block + stride * size, stride)) for offset in range(stride)]
    return groups
