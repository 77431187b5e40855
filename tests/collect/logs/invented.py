"""Numbers that a reader made up: read out of a text that does not have their digits."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator
from typing import Any

from sglang_probe.collect.errors import InputError
from sglang_probe.collect.logs.model import Amount, Fact
from sglang_probe.collect.logs.read import read_log
from sglang_probe.collect.read import Collected
from sglang_probe.collect.report import Tally
from sglang_probe.explain.engine import explain
from sglang_probe.report.explain import explain_text
from sglang_probe.report.text import timeline_text
from sglang_probe.timeline import build, to_json

_JOINED = re.compile(rb"[\x00\r\n]|\x1b\[[0-9;?]*[A-Za-z]|\\[nrtu]|[> |\s]")
"""What may stand between the digits of a number in a wrapped, coloured or escaped text."""


def invented_in(data: bytes) -> list[str]:
    """Read a log, build, explain and print it; return the numbers of its facts whose digits the text does not have."""
    tally = Tally()
    try:
        logs = read_log(io.BytesIO(data), "fuzz.log", tally)
    except InputError:  # two servers that cannot be told apart: nothing is read, so nothing invented
        return []
    timeline = build(Collected(runs=(), report=tally.report(), logs=tuple(logs)))
    to_json(timeline)
    timeline_text(timeline)
    explain_text(explain(timeline), timeline)
    return not_in_text(data, (number for log in logs for fact in log.facts for number in _numbers(fact)))


def not_in_text(data: bytes, numbers: Iterable[str]) -> list[str]:
    """Return the numbers whose characters do not stand in a text, wrapped or not, its lines turned round or not."""
    turned = b"\n".join(reversed(data.split(b"\n")))
    text = b"\n".join((data, _JOINED.sub(b"", data), _JOINED.sub(b"", turned)))
    return sorted({number for number in numbers if number.encode() not in text})


def _numbers(fact: Fact) -> Iterator[str]:
    if fact.kind == "server_args":  # checked value by value in its own test
        return
    for value in fact.values.values():
        yield from _printed(value)


def _printed(value: Any) -> Iterator[str]:
    if isinstance(value, Amount):
        yield value.printed
    elif isinstance(value, list):
        for one in value:
            yield from _printed(one)
    elif isinstance(value, int) and not isinstance(value, bool):
        yield str(abs(value))
