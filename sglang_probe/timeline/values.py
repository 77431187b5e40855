"""Attributes come from a file: a value counts only when it has the type that the contract gives it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def integer(attributes: Mapping[str, Any], key: str) -> int | None:
    """Return a whole number of at most 64 bits; None for anything else."""
    value = attributes.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 63 else None


def number(attributes: Mapping[str, Any], key: str) -> float | None:
    """Return a number as float; None for anything else."""
    value = attributes.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return None


def text(attributes: Mapping[str, Any], key: str) -> str | None:
    """Return a text; None for anything else."""
    value = attributes.get(key)
    return value if isinstance(value, str) else None


def flag(attributes: Mapping[str, Any], key: str) -> bool | None:
    """Return true or false; None for anything else."""
    value = attributes.get(key)
    return value if isinstance(value, bool) else None


def table(attributes: Mapping[str, Any], key: str) -> dict[str, Any]:
    """Return an object; empty for anything else."""
    value = attributes.get(key)
    return value if isinstance(value, dict) else {}


def given_flag(given: Mapping[str, Any] | None, *names: str) -> Any:
    """Return the value of the first of `names` (`mem_fraction_static`) found among flags (`--mem-fraction-static`)."""
    plain = {key.lstrip("-").replace("-", "_"): value for key, value in (given or {}).items()}
    return next((plain[name] for name in names if name in plain), None)


def as_number(value: Any) -> float | None:
    """Return a flag's value, a text or a number, as a number; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None
