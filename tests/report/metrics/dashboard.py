"""The Grafana dashboard as a test looks at it: its panels, its queries, and the names in them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

PATH: Final = Path(__file__).parents[3] / "docs" / "grafana" / "sglang-probe.json"
SELECTOR: Final = re.compile(r"\b([a-zA-Z_:][a-zA-Z0-9_:]*)\{([^}]*)\}|\b((?:hw|sglang)_[a-zA-Z0-9_:]*)\b(?!\{)")
MATCHER: Final = re.compile(r"([a-zA-Z_]\w*)\s*(?:=~|!~|!=|=)")
GROUPED: Final = re.compile(r"\b(?:by|on|without|ignoring|group_left|group_right)\s*\(([^)]*)\)")
JOINED: Final = re.compile(r"label_join\(.*, \"(?P<made>\w+)\", \" \", (?P<of>.*)\)$")
VALUES: Final = re.compile(r"label_values\((?P<selector>.*), (?P<label>\w+)\)$")


class Query(NamedTuple):
    """One query, and the labels that are shown of its result."""

    where: str
    expression: str
    shown: frozenset[str] = frozenset()


class Variable(NamedTuple):
    """A variable that is filled from a label's values."""

    name: str
    selector: str
    label: str


def dashboard() -> dict[str, Any]:
    """Return the whole document."""
    return dict(json.loads(PATH.read_text(encoding="utf-8")))


def panels() -> list[dict[str, Any]]:
    """Return all panels but the rows' titles."""
    return [panel for panel in dashboard()["panels"] if panel["type"] != "row"]


def queries() -> Iterator[Query]:
    """Yield every query of every panel."""
    for panel in panels():
        for target in panel["targets"]:
            shown = frozenset(re.findall(r"\{\{\s*(\w+)\s*\}\}", target["legendFormat"]))
            yield Query(f"{panel['title']} {target['refId']}", target["expr"], shown)


def variables() -> Iterator[Variable]:
    """Yield the variables that ask Prometheus."""
    for one in dashboard()["templating"]["list"]:
        if one["type"] == "query":
            found = VALUES.match(one["query"]["query"])
            assert found is not None and one["definition"] == one["query"]["query"]
            yield Variable(one["name"], found["selector"], found["label"])


def names_in(expression: str) -> dict[str, set[str]]:
    """Return the metrics that a query names, each with the labels that the query wants of it: in its own braces, and
    where the query groups, joins or shows."""
    found: dict[str, set[str]] = {}
    wanted = {label.strip() for group in GROUPED.findall(expression) for label in group.split(",")} - {""}
    joined = JOINED.search(expression)
    wanted |= set(re.findall(r"\w+", joined["of"])) if joined else set()
    for selected, matchers, bare in SELECTOR.findall(GROUPED.sub(" ", expression)):
        labels = set(MATCHER.findall(matchers))
        found.setdefault(selected or bare, set()).update(labels | wanted)
    return found


def filled(expression: str, run: str = ".*", rank: str = ".*") -> str:
    """Return a query with its variables filled in."""
    return expression.replace("$run", run).replace("$rank", rank)
