"""What sides and categories of memory are called in a sentence."""

from __future__ import annotations

from typing import Final

PAIR: Final = ("baseline", "candidate")
CATEGORIES: Final = {
    "driver_reserved": "driver's reserve",
    "cuda_context": "CUDA context",
    "communicator": "communicators",
    "custom_allreduce": "custom all-reduce",
    "weights_target": "weights",
    "weights_draft": "weights, draft",
    "kv_pool": "KV pool",
    "request_pool": "request pool",
    "attention_workspace": "attention",
    "lora": "LoRA",
    "graphs": "graphs",
    "torch_cached": "torch's cache",
    "other_process": "rest of process",
    "run_processes": "run's others",
    "foreign": "foreign",
    "free": "free",
    "unexplained": "unexplained",
}
"""As the tables call them: a test holds these to the report's."""


def called(name: str) -> str:
    """Return a side as a sentence names it: `the baseline`, or `A`."""
    return f"the {name}" if name in PAIR else name


def names_of(count: int) -> tuple[str, ...]:
    """Return what the sides are called: A, B, C... (A1 after Z) where they are more than a pair."""
    if count == len(PAIR):
        return PAIR
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    rounds = (f"{letter}{turn or ''}" for turn in range(count) for letter in letters)
    return tuple(name for name, _ in zip(rounds, range(count), strict=False))
