"""Whatever is done to a log, it is explained without an error, and nothing is made a cause that no line speaks of."""

from __future__ import annotations

import io
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sglang_probe.collect.logs.read import read_log
from sglang_probe.collect.report import ReadReport
from sglang_probe.explain.engine import explain, to_json
from sglang_probe.report.explain import explain_text
from sglang_probe.timeline.logs import run_of
from sglang_probe.timeline.model import Timeline

CASES = Path(__file__).resolve().parents[2] / "data" / "cases"
LINES = [line for path in sorted(CASES.glob("*.log")) for line in path.read_text(encoding="utf-8").splitlines()]
HEALTHY = [line for line in LINES if "Error" not in line and "profiled value -" not in line]
FIGURES = st.sampled_from(["0.00", "-1", "0", "99999999999999999999.99", "1e309", "nan", "", "7", "0.5", "9" * 400])
ASSUMED = st.sampled_from([{}, {"mem_fraction_static": 0.9}, {"mem_fraction_static": 1.0}, {"max_total_tokens": 1024}])


def explained(lines: list[str], assumed: dict[str, float]) -> tuple[list[str], str]:
    """Return the severities of everything that is found, and the report."""
    runs = tuple(run_of(log, assumed) for log in read_log(io.BytesIO("\n".join(lines).encode()), "serve.log"))
    timeline = Timeline(runs=runs, read=ReadReport(files=1, lines=len(lines), bytes=1, events=0))
    found = explain(timeline)
    assert to_json(found)["schema"]
    return [one.severity for run in found.runs for one in run.findings], explain_text(found, timeline, 80)


def mangled(line: str, place: int, figure: str) -> str:
    """Put another figure into the place of one of a line's."""
    words = line.split("=")
    at = place % len(words)
    if at:
        words[at] = figure + words[at].lstrip("-0123456789.")
    return "=".join(words)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(st.sampled_from(LINES), st.integers(0, 8), FIGURES, st.booleans()), max_size=30), ASSUMED)
def test_any_mixture_of_lines_with_any_figures_is_explained(
    picked: list[tuple[str, int, str, bool]], assumed: dict[str, float]
) -> None:
    lines = [mangled(line, place, figure) if change else line for line, place, figure, change in picked]
    _, text = explained(lines, assumed)

    assert "nan" not in text.split()
    assert "inf" not in text.split()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.sampled_from(HEALTHY), max_size=40), ASSUMED)
def test_no_cause_is_found_where_no_line_speaks_of_an_error(lines: list[str], assumed: dict[str, float]) -> None:
    severities, _ = explained(lines, assumed)

    assert "error" not in severities
