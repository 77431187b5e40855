"""What a log says of the server as a whole: its arguments, the fraction in force, the versions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from sglang_probe.collect.logs.model import Fact, LogRun
from sglang_probe.timeline.model import FractionBasis, Provenance

MOST_RANKS = 1 << 20
"""A size beyond that is a broken line."""


class Fraction(NamedTuple):
    """mem_fraction_static, and where it was read."""

    value: float | None
    basis: FractionBasis | None
    reason: str | None


class Told:
    """The arguments that a log names, completed by what the user says that it does not hold."""

    def __init__(self, log: LogRun, assumed: Mapping[str, Any]) -> None:
        self.log = log
        self.assumed = dict(assumed)
        self.arguments = _arguments(log.facts)

    def value(self, *names: str) -> Any:
        """Return the first of these arguments that is known; SGLang's own word counts more than the user's."""
        said = self.arguments or {}
        known = [said[name] for name in names if said.get(name) is not None]
        known += [self.assumed[name] for name in names if name not in said and self.assumed.get(name) is not None]
        return known[0] if known else None

    def count(self, *names: str) -> int | None:
        """Return an argument that is a whole number above zero."""
        value = self.value(*names)
        whole = isinstance(value, int) and not isinstance(value, bool)
        return value if whole and 0 < value < 1 << 62 else None

    @property
    def size(self) -> int | None:
        """Return how many ranks a server of these arguments has in one world; None where they are not known."""
        tensor, stages = self.count("tp_size"), self.count("pp_size")
        if tensor is None and self.arguments is None:
            return None
        size = (tensor or 1) * (stages or 1)
        return size if size < MOST_RANKS else None

    @property
    def caps_tokens(self) -> bool | None:
        """Say whether --max-total-tokens was given; None where nothing says."""
        if self.value("max_total_tokens") is not None:
            return True
        if self.arguments is not None and "max_total_tokens" in self.arguments:
            return False
        return False if "max_total_tokens" in self.assumed else None

    def fraction(self) -> Fraction:
        """Return the fraction in force: as SGLang's message has it, its arguments, or the user."""
        printed = [fact.values.get("fraction") for fact in self.log.facts if fact.kind == "no_memory"]
        in_message = next((value for value in printed if isinstance(value, float)), None)
        if in_message is not None:
            return Fraction(in_message, "message", "as SGLang's message has it")
        argued = _number((self.arguments or {}).get("mem_fraction_static"))
        adjusted = [
            _number(fact.values.get("value"))
            for fact in self.log.facts
            if fact.kind == "adjusted" and fact.text("name") == "mem_fraction_static"
        ]
        if adjusted and adjusted[-1] is not None and argued is None:
            return Fraction(adjusted[-1], "arguments", "as SGLang set it")
        if argued is not None:
            return Fraction(argued, "arguments", "as SGLang resolved its arguments")
        told = _number(self.assumed.get("mem_fraction_static"))
        if told is not None:
            return Fraction(told, "told", "as you say: the log does not name it")
        return Fraction(None, None, "the log does not name it")


def provenance_of(told: Told) -> Provenance:
    """Return what a log says that the server was made of."""
    versions = dict(_versions(told.log.facts))
    release = versions.get("sglang") or told.assumed.get("sglang_version")
    return Provenance(
        sglang_version=release if isinstance(release, str) else None,
        versions=versions,
        effective=told.arguments,
        given=dict(told.assumed) or None,
    )


def _arguments(facts: Iterable[Fact]) -> dict[str, Any] | None:
    found = (fact.values.get("arguments") for fact in facts if fact.kind == "server_args")
    return next((arguments for arguments in found if isinstance(arguments, dict)), None)


def _versions(facts: Iterable[Fact]) -> Iterable[tuple[str, str]]:
    for fact in facts:
        what, version = fact.text("what"), fact.text("version")
        if fact.kind == "version" and what is not None and version is not None:
            yield what, version


def _number(value: Any) -> float | None:
    known = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if known and 0 < value < 10 else None
