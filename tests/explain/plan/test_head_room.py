"""A plan whose head-room is not known still says where it must be too little."""

from __future__ import annotations

import pytest

from sglang_probe.explain.feasible import at_most
from sglang_probe.explain.plan.facts import facts_of
from sglang_probe.explain.plan.inputs import Inputs, Wishes
from sglang_probe.explain.plan.make import plan
from sglang_probe.figures import added, gib
from sglang_probe.timeline.model import Run
from tests.explain.plan.making import GIB, known, made_run


def refused() -> Run:
    """Return a run whose budget was empty, so that nothing after it was measured."""
    return made_run(available=30 * GIB, weights=60 * GIB, fraction=0.5, chunked_prefill_size=8192, cuda_graph_max_bs=8)


def test_a_wish_that_takes_a_fraction_above_explains_bound_is_warned_as_the_plain_plan_is() -> None:
    run = refused()
    bound = facts_of(run).aside
    assert bound is not None
    warning = f"above {at_most(bound.fraction)} less is left than the {gib(bound.needs_bytes)} GiB"

    assert warning in " ".join(plan(run).says)
    assert warning in " ".join(plan(run, None, Wishes(tokens=420_000)).says)
    assert warning in " ".join(plan(run, Inputs(mem_fraction_static=0.95)).says)
    assert warning not in " ".join(plan(run, Inputs(mem_fraction_static=0.8)).says)


@pytest.mark.parametrize("fraction", [0.9, 0.99])
def test_a_slack_below_the_reserve_for_activations_is_said_where_what_stays_free_is_unknown(fraction: float) -> None:
    made = plan(refused(), Inputs(mem_fraction_static=fraction))
    slack, reserve = known(made, "slack_bytes"), known(made, "activations_bytes")

    assert slack < reserve
    assert (
        f"What stays free is at most {gib(slack)} GiB, what the KV cache leaves: {added(reserve, -slack)} GiB less than"
        f" the {gib(reserve)}"
    ) in " ".join(made.says)


def test_what_a_cap_leaves_of_the_rest_is_head_room_too() -> None:
    said = " ".join(plan(refused(), Inputs(mem_fraction_static=0.95, max_total_tokens=20_000)).says)

    assert "What stays free is at most" not in said
    assert "tight" not in said
