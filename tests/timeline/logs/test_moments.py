"""The one offset of a server's clock that fits all moments."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sglang_probe.collect.logs.model import Entry
from sglang_probe.timeline.logs.moments import (
    DAY_S,
    FARTHEST_S,
    QUARTER_S,
    TOLERANCE_S,
    Moment,
    offset_of,
    seconds_of,
    stamp_of,
)

AT = 1_800_000_000.0
ZONES = st.integers(-FARTHEST_S // QUARTER_S, FARTHEST_S // QUARTER_S).map(lambda quarters: quarters * QUARTER_S)


def moment(event: float, stamp: float, *, dated: bool = True, zoned: bool = False) -> Moment:
    return Moment("TP0", stamp, event - TOLERANCE_S, event + TOLERANCE_S, dated, zoned, "a.log:1")


@given(ZONES, st.lists(st.floats(0, 3600), min_size=1, max_size=5), st.floats(-1.9, 1.9))
def test_any_zone_is_found_from_any_moments(zone: int, after: list[float], off: float) -> None:
    found = offset_of([moment(AT + one, AT + one + zone + off) for one in after])

    assert zone == found.seconds


@given(ZONES, st.floats(2.1, QUARTER_S - 2.1))
def test_what_is_no_zone_is_refused_with_its_distance(zone: int, off: float) -> None:
    found = offset_of([moment(AT, AT + zone + off)])

    assert found.seconds is None
    assert found.why_not is not None


@given(ZONES, ZONES)
def test_two_ranks_need_one_offset(first: int, second: int) -> None:
    found = offset_of([moment(AT, AT + first), moment(AT, AT + second)])

    assert (found.seconds is None) == (first != second)


def test_a_time_of_day_fits_on_any_day_and_says_that_it_has_no_date() -> None:
    found = offset_of([moment(AT, AT % DAY_S + 3600, dated=False)])

    assert (3600 - DAY_S if abs(3600) > FARTHEST_S else 3600, False) == (found.seconds, found.dated)


def test_a_carriers_zone_leaves_nothing_to_find() -> None:
    assert 0 == offset_of([moment(AT, AT, zoned=True)]).seconds
    assert offset_of([moment(AT, AT + QUARTER_S, zoned=True)]).seconds is None


def test_no_moment_is_no_answer() -> None:
    assert (None, None) == offset_of([])[0::3]


@given(st.text(max_size=30))
def test_any_text_is_a_time_or_none(text: str) -> None:
    assert seconds_of(text) is None or isinstance(seconds_of(text), float)
    said = stamp_of(Entry(file="a", line=1, text="", stamp=text, ts=text))
    assert said is None or isinstance(said.seconds, float)
