"""Numbers that a user gives: one wording of what is wrong with them."""

from __future__ import annotations

import argparse
import math


def number(text: str) -> float:
    """Return a number; nan, which no bound lets pass, where it is none."""
    try:
        return float(text)
    except ValueError:
        return math.nan


def fraction(text: str) -> float:
    """Return a fraction for argparse, which tells the user what its error says."""
    value = number(text)
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a fraction between 0 and 1, such as 0.80")
    return value
