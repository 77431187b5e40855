"""Whatever is left of a log: it is merged or not, and never a traceback, nor a figure of events that moved."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from sglang_probe.collect.logs.model import Amount, Fact
from sglang_probe.timeline.logs import run_of
from sglang_probe.timeline.logs.merged import Told
from sglang_probe.timeline.logs.together import together
from sglang_probe.timeline.processes import ranks_of
from tests.timeline.logs.pairs import FIRST, LOGS, events_of, log_of

CAR, NOCAR = FIRST / "car.log", FIRST / "nocar.log"
STAMPS = st.sampled_from([None, "", "19:51:13", "2026-11-29 19:51:13", "2026-13-99 99:99:99", "2026-11-29 14:21:13"])


def _moved(fact: Fact, more: int, stamp: str | None) -> Fact:
    values = {
        name: msgspec.structs.replace(value, bytes=value.bytes + more) if isinstance(value, Amount) else value
        for name, value in fact.values.items()
    }
    return Fact(kind=fact.kind, entry=msgspec.structs.replace(fact.entry, stamp=stamp), values=values)


@st.composite
def facts(draw: st.DrawFn) -> tuple[Fact, ...]:
    """Any part of a recorded log's facts in any order, some of them changed."""
    whole = log_of(draw(st.sampled_from(LOGS))).facts
    kept = draw(st.lists(st.integers(0, len(whole) - 1), max_size=len(whole)))
    if draw(st.booleans()):
        kept = sorted(set(kept))
    changes = draw(st.dictionaries(st.integers(0, 10), st.tuples(st.integers(-(1 << 62), 1 << 62), STAMPS), max_size=4))
    return tuple(_moved(whole[at], *changes[place]) if place in changes else whole[at] for place, at in enumerate(kept))


@given(facts())
def test_any_part_of_a_log_is_merged_or_stays_by_itself_and_the_events_stand(some: tuple[Fact, ...]) -> None:
    log = msgspec.structs.replace(log_of(CAR), facts=some)
    events = [events_of(CAR), events_of(NOCAR)]
    runs = together(events, [Told(log, run_of(log))])

    assert [run.run_id for run in events] == [run.run_id for run in runs[:2]]
    assert len(runs) == 2 + (runs[0].source == runs[1].source == "events")
    for before, after in zip(events, runs, strict=False):
        steps = {step.id: step for process in ranks_of(after) for step in process.steps if process.pid is not None}
        assert all(step.id in steps for process in ranks_of(before) for step in process.steps)
        check = after.log_check
        if check is not None:
            figures = [one for one in check.disagreements if one.unit != "text"]
            assert check.compared == check.agree + len(check.explained) + len(figures)
