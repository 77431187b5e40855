"""The bodies that the targets have had in SGLang's releases: the data beside this file, made by `compat/compat.py`."""

from __future__ import annotations

import importlib
import importlib.util
import json
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Final, TypedDict

from sglang_probe.catalogue.releases import expanded
from sglang_probe.catalogue.targets import Target

FILE: Final = "bodies.json"


class Bodies(TypedDict):
    """The file: all releases, oldest first; per target, per fingerprint, the releases as `0.5.7..0.5.9, 0.5.11`."""

    releases: list[str]
    bodies: dict[str, dict[str, str]]


@cache
def known_bodies() -> Bodies:
    """Return the data, read once, and not before somebody asks."""
    data: Bodies = json.loads((files(__package__) / FILE).read_text(encoding="utf-8"))
    return data


def known_in(target: Target, fingerprint: str | None) -> list[str]:
    """Return the releases whose home of that target has this body, oldest first; none where no release has it."""
    data = known_bodies()
    runs = data["bodies"].get(target.name, {}).get(fingerprint or "", "")
    return expanded(runs, data["releases"])


def is_known(target: Target, fingerprint: str) -> bool:
    """Tell whether a person has read this body (`kv.profile`), or a release has it (all others)."""
    if target.role == "kv.profile":
        return fingerprint in formulas()
    return fingerprint in known_bodies()["bodies"].get(target.name, {})


@cache
def formulas() -> Mapping[str, str]:
    """Return the formula's name of every `kv.profile` body that a person has read."""
    if importlib.util.find_spec("sglang_probe.catalogue.formulas") is None:
        return {}
    known: Mapping[str, str] = importlib.import_module("sglang_probe.catalogue.formulas").FORMULAS
    return known


def releases() -> Sequence[str]:
    """Return the releases that the data covers, oldest first."""
    return known_bodies()["releases"]
