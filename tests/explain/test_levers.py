"""Fractions that work, and what makes room where none does: arithmetic that re-adds for any budget."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sglang_probe.explain.counterfactual import before_weights, given_back
from sglang_probe.explain.feasible import interval_of
from sglang_probe.explain.formula import terms_of
from sglang_probe.explain.levers import levers_of
from sglang_probe.explain.set_aside import rule_of_thumb
from sglang_probe.explain.subject import Seat, Subject
from tests.explain.explaining import failed, rank
from tests.timeline.building import gib

pre_loads = st.floats(10, 190)
shares = st.floats(0.0, 0.99)
fractions = st.floats(0.1, 0.98)


def seated(pre_load: float, available: float, fraction: float) -> tuple[Subject, Seat]:
    subject = Subject(
        failed(rank(0, 1, pre_load=pre_load, available=available, fraction=fraction, weights=pre_load - available))
    )
    seat = subject.tightest
    assert seat is not None
    return subject, seat


@given(pre_loads, shares, fractions)
def test_a_fraction_that_is_named_leaves_something_and_room_for_what_follows(
    pre_load: float, share: float, fraction: float
) -> None:
    subject, seat = seated(pre_load, pre_load * share, fraction)
    interval, thumb = interval_of(subject, seat), rule_of_thumb(subject)
    assert interval is not None
    assert thumb is not None

    value, terms = interval.advice, terms_of(seat.budget)
    assert terms is not None
    if value is None:
        narrow = interval.highest is not None and interval.highest.fraction - interval.lowest < 0.001
        assert interval.empty_by_bytes is not None or narrow
    else:
        assert terms._replace(fraction=value).rest_bytes > 0
        assert terms.pre_load * (1 - value) >= thumb.bytes - 64


@given(pre_loads, shares, fractions)
def test_the_interval_is_empty_by_just_what_is_missing(pre_load: float, share: float, fraction: float) -> None:
    subject, seat = seated(pre_load, pre_load * share, fraction)
    interval, thumb = interval_of(subject, seat), rule_of_thumb(subject)
    assert interval is not None
    assert thumb is not None

    missing = thumb.bytes - gib(pre_load * share)
    if missing > 64:
        assert missing == pytest.approx(interval.empty_by_bytes, abs=64)
    elif missing < -64:
        assert interval.empty_by_bytes is None


@given(pre_loads, st.floats(0, 0.1), fractions)
def test_a_lever_is_enough_exactly_where_its_gain_is_more_than_what_is_missing(
    pre_load: float, share: float, fraction: float
) -> None:
    subject, seat = seated(pre_load, pre_load * share, fraction)
    interval = interval_of(subject, seat)
    assume(interval is not None and interval.empty_by_bytes is not None)
    assert interval is not None

    levers = levers_of(subject, seat, interval)
    assert levers
    for lever in levers:
        if lever.gain_bytes is None:  # the fraction that starts all the same
            assert lever.value > interval.lowest
        elif abs(lever.gain_bytes - (interval.empty_by_bytes or 0)) > 1 << 28:  # a fraction has three decimals
            assert lever.enough is (lever.gain_bytes > (interval.empty_by_bytes or 0))


@given(pre_loads, shares, fractions, st.floats(0, 60))
def test_memory_given_back_before_the_weights_counts_by_the_fraction(
    pre_load: float, share: float, fraction: float, back: float
) -> None:
    subject, _ = seated(pre_load, pre_load * share, fraction)

    outcome = given_back(subject, before_weights({"TP0": gib(back)}))

    assert outcome is not None
    assert gib(back) * fraction == pytest.approx(outcome.gain_bytes, abs=128)
