"""Two starts that fail alike: what differs is the cause of neither, unless its value would have let one start."""

from __future__ import annotations

from sglang_probe.explain.diff.compare import compare
from sglang_probe.explain.diff.wording import change
from sglang_probe.figures import gib
from tests.collect.starting import Shape
from tests.explain.diff.pairs import GIB, made

TOO_LOW = 0.1
WEIGHTS = 20 * GIB


def test_what_differs_between_two_failures_alike_is_the_cause_of_neither_with_the_number() -> None:
    runs = [made(Shape(fraction=TOO_LOW, allreduce=size), run_id=str(size)) for size in (GIB // 32, GIB // 4)]
    found = compare(runs)
    before, after = (side.rest_bytes for side in found.sides)
    assert before is not None and after is not None

    assert found.says[0].startswith(f"both fail alike in {runs[0].failed_phase}")
    assert f"with rest {gib(before)} and {gib(after)} GiB" in found.says[0]
    assert f"changed the rest by {change(before, after)} GiB and is not the cause of either failure" in found.says[0]
    assert not any(cause.explains for cause in found.causes)
    assert not any("explains" in said for said in found.says)


def test_a_lower_fraction_of_two_that_are_too_low_is_no_cause_either() -> None:
    found = compare([made(Shape(fraction=one), run_id=str(one)) for one in (TOO_LOW, TOO_LOW / 2)])

    assert "is not the cause of either failure: --mem-fraction-static" in found.says[0]
    assert not any(cause.explains for cause in found.causes)


def test_two_failures_of_two_reasons_are_told_apart() -> None:
    too_low = made(Shape(fraction=TOO_LOW, weights=WEIGHTS))
    too_heavy = made(Shape(fraction=0.5, weights=60 * GIB), run_id="two")
    found = compare((too_low, too_heavy))

    assert "not for one reason" in found.says[0]
    assert "with the baseline's value of weights the candidate's rest would be" in found.says[0]
    assert "the baseline's rest would be" in found.says[0]
    assert found.causes[0].explains is None


def test_one_error_in_one_phase_with_one_difference_is_no_cause_of_either() -> None:
    runs = [made(Shape(fail_in="graph.capture", fraction=one), run_id=str(one)) for one in (0.7, 0.8)]
    found = compare(runs)

    assert found.says[0].startswith("both fail alike in graph.capture (RuntimeError: no luck in graph.capture)")
    assert "it fails with it and without it" in found.says[0]


def test_two_errors_in_two_phases_are_not_alike() -> None:
    runs = [made(Shape(fail_in=phase), run_id=phase) for phase in ("attention.init", "graph.capture")]

    assert not any("alike" in said for said in compare(runs).says)
