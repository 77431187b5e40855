"""Colours and patterns of the ledger's categories, the same in every chart.

The colours are those of Okabe and Ito, which people with any kind of colour blindness tell apart; where categories are
more than colours, a pattern parts those that share one.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Look(NamedTuple):
    """How a category is drawn."""

    colour: str
    pattern: str = ""
    """One of `/`, `\\`, `x`, `.`, `|`, `-`, or none."""


ORANGE, SKY, GREEN, YELLOW = "#E69F00", "#56B4E9", "#009E73", "#F0E442"
BLUE, VERMILLION, PURPLE, GREY = "#0072B2", "#D55E00", "#CC79A7", "#8C8C8C"
LOOKS: Final = {  # `in_use` is no category: what cannot be told apart, in a log or on a CPU
    "driver_reserved": Look(GREY),
    "cuda_context": Look(GREY, "/"),
    "communicator": Look(PURPLE),
    "custom_allreduce": Look(PURPLE, "x"),
    "weights_target": Look(BLUE),
    "weights_draft": Look(BLUE, "/"),
    "kv_pool": Look(GREEN),
    "request_pool": Look(GREEN, "/"),
    "attention_workspace": Look(ORANGE),
    "lora": Look(BLUE, "."),
    "graphs": Look(YELLOW),
    "torch_cached": Look(YELLOW, "x"),
    "other_process": Look(SKY),
    "run_processes": Look(SKY, "/"),
    "foreign": Look(VERMILLION),
    "free": Look("#F2F2F2"),
    "unexplained": Look(VERMILLION, "\\"),
    "in_use": Look("#BDBDBD", "/"),
}
