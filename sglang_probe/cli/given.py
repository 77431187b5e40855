"""Numbers and arguments that a user gives: one wording of what is wrong with them."""

from __future__ import annotations

import argparse
import json
import math
import re
from collections.abc import Iterable
from typing import Any, Final

from sglang_probe.cli.errors import BadUse

SHORT: Final = {"tp": "tp_size", "pp": "pp_size", "dp": "dp_size", "ep": "ep_size", "model": "model_path"}
"""Other names that SGLang's command line takes for its arguments."""
COUNTS: Final = frozenset(
    {
        "bytes_per_token",
        "context_length",
        "cuda_graph_max_bs",
        "dp_size",
        "ep_size",
        "max_prefill_tokens",
        "max_running_requests",
        "max_total_tokens",
        "nnodes",
        "page_size",
        "pp_size",
        "tp_size",
    }
)
"""What must be a whole number from 1, if it is named."""
TEXTS: Final = frozenset({"dtype", "kv_cache_dtype", "model_path", "quantization", "sglang_version", "tokenizer_path"})
"""What is never a number, though it may look like one: `0.5`."""
_NAME: Final = re.compile(r"[a-z][a-z0-9_]*")
_PYTHON: Final[dict[str, bool | None]] = {"True": True, "False": False, "None": None}
"""As SGLang prints them."""
_ASSUME_HELP: Final = (
    "an argument of SGLang's that a log does not hold, as mem_fraction_static=0.83; also bytes_per_token and"
    " sglang_version; may be repeated"
)


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


def add_assume(parser: argparse._ActionsContainer) -> None:
    """Take what a log does not hold."""
    parser.add_argument(
        "--assume", type=assumption, action="append", default=[], metavar="NAME=VALUE", help=_ASSUME_HELP
    )


def assumption(text: str) -> tuple[str, Any]:
    """Return the name and the value of an argument for argparse, which tells the user what its error says."""
    given, equals, value = text.partition("=")
    name = given.strip().lstrip("-").replace("-", "_")
    name = SHORT.get(name, name)
    if not equals or not _NAME.fullmatch(name) or not value.strip():
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE, such as mem_fraction_static=0.83")
    return name, _checked(name, value.strip())


def assumed(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Return the arguments by name.

    Raises:
        BadUse: one is given twice, and differs.
    """
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found and found[name] != value:
            raise BadUse(f"--assume names {name} twice, as {found[name]!r} and as {value!r}; give one")
        found[name] = value
    return found


def _checked(name: str, text: str) -> Any:
    if name in TEXTS:
        return text if len(text) < 2 or text[0] != text[-1] or text[0] not in "'\"" else text[1:-1]
    if name == "mem_fraction_static":
        return fraction(text)
    value = _scalar(text)
    if name in COUNTS and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
        raise argparse.ArgumentTypeError(f"{name}={text} is not a whole number from 1, such as {name}=8")
    if isinstance(value, (list, dict)):
        raise argparse.ArgumentTypeError(f"{name}={text} is not one number or text, such as {name}=8")
    return value


def _scalar(text: str) -> Any:
    """Return what a text is as JSON or as Python prints it; the text itself where it is neither."""
    if text in _PYTHON:
        return _PYTHON[text]
    digits = text.replace(",", "").replace("_", "")
    try:
        return json.loads(digits if digits.isdecimal() and text[0].isdecimal() else text, parse_constant=str)
    except (ValueError, RecursionError):
        return text
