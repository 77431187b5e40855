"""Whatever the readings say, leave out or contradict: the ledger sums to its total to the byte, and nothing raises."""

from __future__ import annotations

import copy
import functools
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from sglang_probe.events.envelope import READING_KEYS
from tests.timeline.cards import Card, card, process_of, rows

CALLS = ["dist.communicator", "allreduce.buffers", "weights.load", "kv.pool", "attention.init", "graph.capture"]
BYTES = st.none() | st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(0, 1 << 38)
LISTED = st.fixed_dictionaries(
    {"pid": st.sampled_from([4200, 1, 9]), "bytes": BYTES, "start_ticks": st.sampled_from([None, 1000, 7])}
)
VALUES = dict.fromkeys(READING_KEYS, BYTES) | {"nvml_processes": st.none() | st.lists(LISTED, max_size=3)}


@functools.cache
def _start() -> list[dict[str, Any]]:
    """Return the events of a start that went well."""
    rank = card(listed_less=6)
    with rank.step("scheduler.init"):
        rank.set_up()
        for role in CALLS:
            with rank.step(role), rank.step(role):
                rank.take(torch=16, reserved=20, raw=2)
        rank.sample("kv.pool", pool="MHA", bytes=1)
    return rank.events


def _damaged(data: st.DataObject) -> Card:
    rank = card()
    rank.events = copy.deepcopy(_start())
    readings = [event[when] for event in rank.events for when in ("before", "after") if event[when] is not None]
    for reading in data.draw(st.lists(st.sampled_from(readings), max_size=12)):
        for key in data.draw(st.sets(st.sampled_from(READING_KEYS), max_size=6)):
            reading[key] = data.draw(VALUES[key])
    for lost in data.draw(st.sets(st.integers(1, len(rank.events) - 1), max_size=4)):
        rank.events[lost] = rank.events[lost] | {"before": None, "after": None}
    for lost in sorted(data.draw(st.sets(st.integers(1, len(rank.events) - 1), max_size=4)), reverse=True):
        del rank.events[lost]
    return rank


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_the_rows_sum_to_the_total_whatever_was_read(data: st.DataObject) -> None:
    process = process_of(_damaged(data))

    for step in process.steps:
        if step.ledger is not None:
            rows(step)  # which checks the sum, and that every unknown row has its reason
        else:
            assert (None, {}) == (step.ledger_total_source, step.ledger_reasons)


@settings(max_examples=100, deadline=None)
@given(st.permutations(range(30)))
def test_seq_in_any_order_raises_nothing(order: list[int]) -> None:
    rank = card()
    rank.events = copy.deepcopy(_start())
    for event, seq in zip(rank.events, order, strict=False):
        event["seq"] = seq

    for step in process_of(rank).steps:
        rows(step)
