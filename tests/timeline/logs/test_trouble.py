"""Which errors of a log are failures: none that was caught, or that the rank went on from."""

from __future__ import annotations

import msgspec
import pytest

from sglang_probe.collect.logs.model import Fact
from sglang_probe.timeline.logs.remarks import UNHEALTHY
from sglang_probe.timeline.logs.run import run_of
from tests.timeline.logs.making import fact, healthy, log

OOM = "CUDA out of memory. Tried to allocate 2.00 GiB"
RANK = "TP0"


def with_error(*errors: Fact, before: str = "graph_begin", rank: str = RANK) -> list[Fact]:
    """Return the lines of a rank with errors before its line of a kind; at the end where it has none."""
    facts = healthy(rank)
    place = next((place for place, one in enumerate(facts) if one.kind == before), len(facts))
    return [*facts[:place], *errors, *facts[place:]]


def test_an_error_that_its_rank_went_on_from_is_a_remark() -> None:
    run = run_of(log(*with_error(fact(RANK, "out_of_memory", text=OOM))))

    assert ("ready", None) == (run.outcome, run.failure)
    assert ["out_of_memory"] == [one.kind for one in run.remarks]


def test_an_error_of_a_rank_that_goes_no_further_is_a_failure_whatever_others_print() -> None:
    error = fact("TP1", "out_of_memory", text=OOM)
    run = run_of(log(*healthy("TP1")[:6], error, *healthy(RANK)))

    assert ("failed", "TP1", ()) == (run.outcome, run.failed_label, run.remarks)


def test_what_announces_the_end_of_a_process_is_a_failure_whatever_follows() -> None:
    error = fact(RANK, "exception", text="Scheduler hit an exception: none", type="ValueError", message="none")

    assert "failed" == run_of(log(*with_error(error))).outcome


@pytest.mark.parametrize(("prefixed", "outcome"), [(True, "ready"), (False, "failed")])
def test_an_error_of_no_rank_is_the_only_rank_s_where_sglang_prefixed_it(prefixed: bool, outcome: str) -> None:
    error = fact("", "out_of_memory", text=OOM)
    error = msgspec.structs.replace(error, entry=msgspec.structs.replace(error.entry, prefixed=prefixed))
    run = log(*with_error(error, rank=""))
    facts = [
        msgspec.structs.replace(one, entry=msgspec.structs.replace(one.entry, prefixed=prefixed))
        if one.kind == "out_of_memory"
        else one
        for one in run.facts
    ]

    assert outcome == run_of(msgspec.structs.replace(run, facts=tuple(facts))).outcome


@pytest.mark.parametrize("kind", ["exception", "out_of_memory", "no_memory"])
def test_a_caught_error_is_none_even_where_the_text_ends_at_it(kind: str) -> None:
    run = run_of(log(*healthy(RANK)[:6], fact(RANK, kind, text=OOM, caught=True)))

    assert ("unknown", None, [kind]) == (run.outcome, run.failure, [one.kind for one in run.remarks])


def test_an_error_after_the_server_was_ready_is_a_later_one() -> None:
    run = run_of(log(*healthy(RANK), fact("", "ready"), fact(RANK, "out_of_memory", text=OOM), *healthy(RANK)[-2:]))

    assert [OOM] == [one.message for one in run.later]


def test_a_health_check_is_early_before_the_server_was_ready_and_unanswered_after() -> None:
    check = fact("", "harmless", what="not_ready_yet", text="GET /health 503")
    run = run_of(log(check, *healthy(RANK), fact("", "ready"), check, check))

    assert [("harmless", "not_ready_yet", 1), ("not_memory", UNHEALTHY, 2)] == [
        (one.kind, one.what, one.count) for one in run.remarks
    ]
