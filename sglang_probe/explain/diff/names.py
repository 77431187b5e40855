"""What the sides of a difference are called in a sentence."""

from __future__ import annotations

from typing import Final

PAIR: Final = ("baseline", "candidate")


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
