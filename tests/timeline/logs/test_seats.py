"""Whose a line of a log is: which rank's, and which model's."""

from __future__ import annotations

import pytest

from sglang_probe.collect.logs.model import Fact
from sglang_probe.timeline.logs.seats import seats_of
from tests.timeline.logs.making import fact, healthy, log


def _weights(kind: str, available: str) -> Fact:
    return fact("TP0", kind, avail=available, model_class="LlamaForCausalLM")


def _pool(rank: str = "TP0") -> Fact:
    return fact(rank, "kv_alloc", cache="KV Cache", tokens=10, k="1.00", v="1.00", bound=False)


def test_ranks_stand_in_their_order_however_their_lines_do() -> None:
    seats, _ = seats_of(log(*healthy("DP1 TP3"), *healthy("DP0 TP1"), *healthy("DP0 TP0")))
    assert [seat.label for seat in seats] == ["DP0 TP0", "DP0 TP1", "DP1 TP3"]


def test_lines_without_a_rank_are_of_the_only_rank_where_no_line_names_one() -> None:
    seats, loose = seats_of(log(*healthy(""), fact("", "ready")))
    assert [seat.label for seat in seats] == ["TP0"]
    assert [one.kind for one in loose] == ["ready"]


def test_lines_without_a_rank_are_nobody_s_where_others_name_theirs() -> None:
    seats, loose = seats_of(log(*healthy("TP1"), fact("", "allreduce_registered", addresses=3)))
    assert [seat.label for seat in seats] == ["TP1"]
    assert [one.kind for one in loose] == ["allreduce_registered"]


def test_an_error_alone_is_of_a_rank_that_is_not_known() -> None:
    seats, loose = seats_of(log(fact("", "out_of_memory", text="CUDA out of memory.")))
    assert [seat.label for seat in seats] == [None]
    assert not loose


BEFORE_0_5_14 = (
    ("weights_begin", 0), ("weights_end", 0), ("pool", 0), ("pool_end", 0), ("graph_begin", 0), ("graph_end", 0),
    ("weights_begin", 1), ("weights_end", 1), ("pool", 1), ("pool_end", 1), ("draft_begin", 1), ("draft_end", 1),
)  # fmt: skip
FROM_0_5_14 = (
    ("weights_begin", 0), ("weights_end", 0), ("weights_begin", 1), ("weights_end", 1), ("pool", 0), ("pool_end", 0),
    ("pool", 1), ("pool_end", 1), ("graph_begin", 0), ("graph_end", 0), ("draft_begin", 1), ("draft_end", 1),
)  # fmt: skip


@pytest.mark.parametrize("order", [BEFORE_0_5_14, FROM_0_5_14], ids=["before 0.5.14", "from 0.5.14"])
def test_a_second_group_of_lines_in_one_rank_is_the_draft(order: tuple[tuple[str, int], ...]) -> None:
    facts = []
    for name, _ in order:
        if name == "pool":
            facts.append(_pool())
        elif name.startswith("draft"):
            facts.append(fact("TP0", f"graph_{name[6:]}", graph="draft", avail="1.00"))
        else:
            facts.append(fact("TP0", name, avail="1.00", graph="decode"))
    ((seat,), _) = seats_of(log(*facts))
    assert seat.owners == [owner for _, owner in order]
    assert seat.models == 2


def test_a_target_alone_has_one_model() -> None:
    ((seat,), _) = seats_of(log(*healthy("TP0")))
    assert set(seat.owners) == {0}


def test_a_draft_graph_without_weights_of_its_own_is_a_draft_s_all_the_same() -> None:
    facts = [*healthy("TP0"), fact("TP0", "graph_begin", graph="draft", avail="5.00")]
    ((seat,), _) = seats_of(log(*facts))
    assert seat.owners[-1] == 1


def test_graphs_of_a_draft_of_several_layers_are_of_the_layer_that_they_name() -> None:
    facts = [one for _ in range(4) for one in (_weights("weights_begin", "9.00"), _weights("weights_end", "8.00"))]
    facts += [fact("TP0", "graph_begin", graph="draft", step=step, avail="5.00") for step in range(3)]
    ((seat,), _) = seats_of(log(*facts))
    assert seat.owners[-3:] == [1, 2, 3]
