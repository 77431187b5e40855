"""The order of the findings, their documentation, and that no timeline breaks a rule."""

from __future__ import annotations

import io
import json
import random
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sglang_probe.collect import read
from sglang_probe.explain.engine import explain, to_json
from sglang_probe.explain.feasible import at_least, at_most
from sglang_probe.explain.rules import LAST, RULES
from sglang_probe.explain.titles import TITLES
from sglang_probe.timeline import build
from tests.collect.building import Host
from tests.collect.starting import Shape, launch
from tests.explain.explaining import failed, findings, rank, tenant
from tests.timeline.making import gone, unknowable

ROOT = Path(__file__).resolve().parents[2]
SEVERITIES = ("error", "warning", "info")
LINES = [
    line
    for writer in launch([Shape(fail_in="kv.profile"), Shape(stop_in="weights.load"), Shape(fraction=0.2)], Host())
    for line in writer.lines()
]


def test_causes_lead_then_warnings_then_the_rest_each_in_the_order_of_the_rules() -> None:
    run = failed(rank(0, 1, pre_load=84.0, available=11.7, fraction=0.85, tenants=(tenant(10.0),)))

    found = findings(run)
    assert sorted(found, key=lambda one: SEVERITIES.index(one.severity)) == found
    assert ["foreign_tenant", "weights_exceed_budget"] == [one.rule for one in found if one.severity == "error"]


def test_every_rule_has_a_title_and_an_anchor_in_the_documentation() -> None:
    page = (ROOT / "docs" / "explain.md").read_text(encoding="utf-8")
    headings = {line.removeprefix("### ") for line in page.splitlines() if line.startswith("### ")}

    assert {name.replace("_", "-") for name in TITLES} == headings


def test_every_finding_points_to_its_rule_in_the_documentation() -> None:
    found = findings(failed(rank(0), rank(1)))

    assert {one.rule for one in found} <= TITLES.keys()
    assert all(one.doc == f"docs/explain.md#{one.rule.replace('_', '-')}" for one in found)


def test_every_rule_is_documented_where_it_stands() -> None:
    assert [rule.__name__ for rule in (*RULES, LAST) if not rule.__doc__] == []


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.randoms(use_true_random=False), st.integers(0, len(LINES)), st.sampled_from([gone, unknowable]))
def test_any_part_of_any_start_is_explained_without_an_error(shuffler: random.Random, kept: int, alive: object) -> None:
    lines = shuffler.sample(LINES, kept)
    if not lines:
        return
    timeline = build(read(["-"], io.BytesIO(b"".join(lines))), alive=alive)  # type: ignore[arg-type]

    document = to_json(explain(timeline))

    assert json.loads(msgspec.json.encode(document))["schema"] == document["schema"]
    assert len(timeline.runs) == len(document["runs"])


@pytest.mark.parametrize("key", ["attributes", "before", "after", "exception"])
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_values_in_an_event_are_explained_without_an_error(key: str, data: st.DataObject) -> None:
    numbers = st.integers(-(1 << 62), 1 << 62) | st.floats(allow_nan=False) | st.none() | st.text(max_size=5)
    lines = []
    for line in LINES:
        event = json.loads(line)
        table = event.get(key)
        if isinstance(table, dict) and table:
            name = data.draw(st.sampled_from(sorted(table)))
            table[name] = data.draw(numbers)
        lines.append(json.dumps(event).encode() + b"\n")
    timeline = build(read(["-"], io.BytesIO(b"".join(lines))), alive=unknowable)

    assert [run.run_id for run in timeline.runs] == [run.run_id for run in explain(timeline).runs]


@pytest.mark.parametrize("value", [1e305, -1e305, float("inf"), float("nan"), 0.76917])
def test_a_bound_of_any_size_is_printed(value: float) -> None:
    assert at_least(value) and at_most(value)
    assert (at_least(0.76911), at_most(0.76919)) == ("0.7692", "0.7691")
