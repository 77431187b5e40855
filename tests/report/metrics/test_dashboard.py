"""The Grafana dashboard asks for nothing that a report does not have."""

from __future__ import annotations

import re

import pytest

from sglang_probe.timeline.model import Timeline
from tests.report.metrics.dashboard import Query, Variable, dashboard, names_in, panels, queries, variables
from tests.report.metrics.exposed import Exposed, exposed
from tests.report.reported import CAR, HEALTHY_LOG, LEFT_OVER, LOWFRAC, made, reported


@pytest.fixture
def metrics(ready: Timeline) -> Exposed:
    """Recorded runs that were ready, failed, had a tenant, had no probe; and a made one with a deduction."""
    return exposed(made(*reported(CAR, LOWFRAC, LEFT_OVER, HEALTHY_LOG).timeline.runs, *ready.runs))


@pytest.mark.parametrize("query", list(queries()), ids=lambda query: query.where)
def test_every_metric_and_label_of_a_query_is_in_a_report(query: Query, metrics: Exposed) -> None:
    named = names_in(query.expression)

    assert named
    for name, labels in named.items():
        assert labels <= metrics.labels[name]
    assert query.shown <= set.union(*(set(metrics.labels[name]) for name in named))


@pytest.mark.parametrize("variable", list(variables()), ids=lambda variable: variable.name)
def test_a_variable_is_filled_from_a_label_that_exists(variable: Variable, metrics: Exposed) -> None:
    ((name, labels),) = names_in(variable.selector).items()

    assert {*labels, variable.label} <= metrics.labels[name]


def test_a_name_that_does_not_exist_would_be_noticed(metrics: Exposed) -> None:
    assert {"sglang_probe_nothing": {"run", "rank"}} == names_in('sum by (rank) (sglang_probe_nothing{run=~"$run"})')
    assert {"sglang_probe_bare": set()} == names_in("sglang_probe_bare > 0")
    assert {"hw_x": {"a", "run"}} == names_in('label_join(hw_x{a!="b"}, "where", " ", "run")')
    assert "sglang_probe_nothing" not in metrics.labels


def test_the_dashboard_fits_any_grafana_from_10_on() -> None:
    whole = dashboard()

    kinds = {panel["type"] for panel in panels()}
    assert {"stat", "bargauge", "barchart", "table", "timeseries"} == kinds  # none of those that were made with Angular
    numbers = [panel["id"] for panel in whole["panels"]]
    assert len(set(numbers)) == len(numbers)
    assert "uid" not in whole and "id" not in whole and "__inputs" not in whole
    asking = [one for panel in panels() for one in (panel, *panel["targets"])]
    assert all({"type": "prometheus", "uid": "${datasource}"} == one["datasource"] for one in asking)
    assert "datasource" == whole["templating"]["list"][0]["type"]


def test_the_rows_come_in_the_order_in_which_one_looks() -> None:
    titles = [panel["title"] for panel in dashboard()["panels"] if panel["type"] == "row"]

    assert ["Outcome and fraction", "Memory", "Budget", "Phases", "KV cache", "Health of the probe"] == titles


def test_no_panel_lies_on_another() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in dashboard()["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert at["x"] + at["w"] <= 24 and not cells & taken
        taken |= cells


def test_every_panel_shows_a_metric_in_its_own_unit() -> None:
    """Bytes are shown as IEC bytes, seconds as seconds, a ratio as a percentage."""
    units = {"bytes": "bytes", "seconds": "s", "ratio": "percentunit"}
    for panel in panels():
        names = {name for target in panel["targets"] for name in names_in(target["expr"])}
        suffixes = {suffix for name in names for suffix in units if re.search(rf"_{suffix}(_per_token)?$", name)}
        unit = panel["fieldConfig"]["defaults"].get("unit", "short")
        assert {unit} == {units[suffix] for suffix in suffixes} or (not suffixes and unit == "short")
