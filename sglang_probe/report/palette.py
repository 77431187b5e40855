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
    """One of `/`, `\\`, `x`, `+`, or none."""


ORANGE, SKY, GREEN, YELLOW = "#e69f00", "#56b4e9", "#009e73", "#f0e442"
BLUE, VERMILLION, PURPLE, GREY = "#0072b2", "#d55e00", "#cc79a7", "#8c8c8c"
LOOKS: Final = {
    "driver_reserved": Look(GREY, "x"),
    "cuda_context": Look(GREY, "\\"),
    "communicator": Look(PURPLE),
    "custom_allreduce": Look(VERMILLION, "/"),
    "weights_target": Look(BLUE),
    "weights_draft": Look(BLUE, "/"),
    "kv_pool": Look(GREEN),
    "request_pool": Look(GREEN, "x"),
    "attention_workspace": Look(ORANGE),
    "lora": Look(ORANGE, "x"),
    "graphs": Look(YELLOW),
    "torch_cached": Look(SKY),
    "other_process": Look(SKY, "/"),
    "run_processes": Look(PURPLE, "x"),
    "foreign": Look(VERMILLION),
    "free": Look("#e4e9ed"),
    "unexplained": Look("#b0b0b0", "+"),
    "in_use": Look("#bdbdbd", "/"),
}
"""`in_use` is no category: what cannot be told apart, in a log or on a CPU."""
