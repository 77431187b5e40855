"""Whatever two runs: none differs from itself, the other way round is the mirror, and the parts re-add to the byte."""

from __future__ import annotations

import io
import json
from contextlib import suppress
from itertools import combinations
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from sglang_probe.collect import InputError, read
from sglang_probe.explain.diff.compare import compare
from sglang_probe.explain.diff.model import Arithmetic, Diff
from sglang_probe.explain.diff.printed import of_the_whole, printed
from sglang_probe.explain.diff.sentences import NOTHING
from sglang_probe.explain.diff.values import SAME_ON_A_CARD
from sglang_probe.figures import added
from sglang_probe.report.diff import diff_text
from sglang_probe.timeline import build
from sglang_probe.timeline.model import Run
from tests.collect.building import Host, line_of
from tests.collect.starting import Shape, launch
from tests.explain.diff.pairs import GIB, OUTWEIGHED, RECORDED, made, recorded
from tests.timeline.any_values import spoil
from tests.timeline.making import unknowable

ROLES = ["dist.init", "weights.load", "kv.profile", "kv.pool", "attention.init", "graph.capture"]
memory = st.integers(0, 4 * GIB)
shapes = st.builds(
    Shape,
    fraction=st.floats(0.05, 0.99),
    context=memory,
    communicator=memory,
    allreduce=memory,
    weights=st.integers(0, 40 * GIB),
    bytes_per_token=st.integers(1, 1 << 20),
    max_total_tokens=st.none() | st.integers(1, 10**6),
    unit=st.sampled_from(["bytes", "tokens"]),
    fail_in=st.none() | st.sampled_from(ROLES),
    stop_in=st.none() | st.sampled_from(ROLES),
)
starts = st.lists(shapes, min_size=1, max_size=3)
PAIRS = list(combinations(RECORDED, 2))


def names(pair: tuple[Any, Any]) -> str:
    return "-".join(path.name for path in pair)


def re_adds(work: Arithmetic) -> None:
    """Hold the parts to the whole: of the rest, of the pre-load memory, of the tokens."""
    whole = [piece for piece in work.pieces if piece.of is None]
    assert work.delta_bytes == work.rest_bytes[1] - work.rest_bytes[0]
    assert work.delta_bytes == sum(piece.delta_bytes for piece in whole)
    below = [piece.delta_bytes for piece in work.pieces if piece.of == "pre_load"]
    assert sum(below) == sum(piece.delta_bytes for piece in whole if piece.part == "pre_load")
    if work.delta_tokens is not None:
        assert work.delta_tokens == sum(piece.delta_tokens or 0 for piece in whole)


def re_adds_as_printed(work: Arithmetic) -> None:
    """Hold the printed parts to the printed whole, and those below the pre-load memory to it."""
    figures = printed(work)
    whole = added(work.rest_bytes[1], -work.rest_bytes[0])
    parts = sum(round(float(figure) * 1000) for _, figure in of_the_whole(work))
    assert round(float(whole) * 1000) == figures.whole == parts
    below = [figures.parts[piece.part] for piece in work.pieces if piece.of == "pre_load"]
    assert not any(below) or sum(below) == figures.parts["pre_load"]


LISTS = ("states", "cost_bytes", "bytes", "values", "effective")
DELTAS = ("delta_bytes", "delta")


def told(found: Diff, *, turned: bool = False) -> Any:
    """Return what a comparison says of ranks and provenance, in one order; `turned`: as the other way round says it."""
    shaped = msgspec.to_builtins(found)
    rows = [row for rank in shaped["ranks"] for kind in ("steps", "ledger", "budget") for row in rank[kind]]
    for row in [*rows, *shaped["provenance"]] if turned else []:
        row.update({key: row[key][::-1] for key in LISTS if row.get(key) is not None})
        row.update({key: -row[key] for key in DELTAS if row.get(key) is not None})
    for rank in shaped["ranks"]:
        rank.update({kind: sorted(rank[kind], key=json.dumps) for kind in ("steps", "ledger", "budget")})
    return sorted(shaped["ranks"], key=lambda rank: str(rank["label"])), shaped["provenance"]


def mirrors(first: Run, second: Run) -> None:
    one, other = compare((first, second)), compare((second, first))
    assert told(one, turned=True) == told(other)
    assert (one.arithmetic is None) == (other.arithmetic is None)
    if one.arithmetic is not None and other.arithmetic is not None:
        re_adds(one.arithmetic)
        re_adds_as_printed(one.arithmetic)
        there = {piece.part: (piece.delta_bytes, piece.delta_tokens) for piece in one.arithmetic.pieces}
        back = {piece.part: (-piece.delta_bytes, _minus(piece.delta_tokens)) for piece in other.arithmetic.pieces}
        assert there == back


def _minus(count: int | None) -> int | None:
    return None if count is None else -count


def is_empty(run: Run) -> None:
    found = compare((run, run))
    assert (NOTHING,) == found.says
    assert not (found.provenance or found.ranks or found.causes or found.arithmetic or found.experiment)


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_a_recorded_run_differs_from_itself_in_nothing(path: Any) -> None:
    is_empty(recorded(path))


@pytest.mark.parametrize("pair", PAIRS, ids=names)
def test_any_two_recorded_runs_mirror_each_other_and_re_add(pair: Any) -> None:
    mirrors(*(recorded(path) for path in pair))


@settings(max_examples=15, suppress_health_check=[HealthCheck.too_slow])
@given(starts)
def test_any_run_differs_from_itself_in_nothing(one: list[Shape]) -> None:
    is_empty(made(*one))


@settings(max_examples=30, suppress_health_check=[HealthCheck.too_slow])
@given(starts, starts)
@example(*OUTWEIGHED)
def test_any_two_runs_mirror_each_other_and_re_add(one: list[Shape], other: list[Shape]) -> None:
    mirrors(made(*one), made(*other, run_id="two"))


@settings(max_examples=10, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(starts, min_size=3, max_size=5))
def test_any_number_of_runs_makes_a_matrix_with_an_entry_a_side(several: list[list[Shape]]) -> None:
    found = compare([made(*shapes, run_id=f"run-{number}") for number, shapes in enumerate(several)])

    assert len(several) == len(found.sides)
    for rank in found.ranks:
        assert {len(row.states) for row in rank.steps} <= {len(several)}
        assert {len(row.bytes) for row in rank.ledger} <= {len(several)}
    assert all(len(line) <= 80 or "/" in line for line in diff_text(found).split("\n"))


def _lines() -> list[dict[str, Any]]:
    writers = launch([Shape(), Shape(fail_in="kv.profile")], Host())
    return [json.loads(line) for writer in writers for line in writer.lines()]


@settings(max_examples=50, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_no_value_in_any_field_makes_anything_raise(data: st.DataObject) -> None:
    events = _lines()
    for _ in range(data.draw(st.integers(1, 5))):
        spoil(data, data.draw(st.sampled_from(events)))
    with suppress(InputError):
        stream = io.BytesIO(b"".join(line_of(event) for event in events))
        for run in build(read(["-"], stream), alive=unknowable).runs:
            for pair in ((run, made(Shape())), (made(Shape()), run), (run, run), (run, made(Shape()), run)):
                found = compare(pair, everything=True)
                diff_text(found)
                json.dumps(msgspec.to_builtins(found))


@pytest.mark.parametrize(("more", "differs"), [(SAME_ON_A_CARD // 2, False), (2 * SAME_ON_A_CARD, True)])
def test_less_than_a_mebibyte_of_a_card_is_no_difference(more: int, differs: bool) -> None:
    one, two = made(Shape(weights=GIB)), made(Shape(weights=GIB + more), run_id="two")
    found = compare((one, two))

    assert differs is bool(found.ranks or found.arithmetic or found.causes)
