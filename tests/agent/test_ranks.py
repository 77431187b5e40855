"""A process's ranks, from wherever its release keeps them."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglang_probe.agent.readers.ranks import rank_of

ARGUMENTS = {"tp_rank": 3, "pp_rank": 1, "dp_rank": None, "moe_ep_rank": 3, "gpu_id": 3}


class Unpublished:
    """SGLang's context before it is written: every read raises."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(f"{name} has not been written in this process")


@pytest.fixture
def publish(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Give SGLang a runtime context with these ranks and sizes."""

    def put(parallel: Any) -> None:
        context = ModuleType("sglang.srt.runtime_context")
        vars(context)["get_parallel"] = lambda: parallel
        monkeypatch.setitem(sys.modules, context.__name__, context)

    return put


def args(**values: Any) -> SimpleNamespace:
    return SimpleNamespace(**{"tp_size": 4, "pp_size": 2, "dp_size": 1, "ep_size": 4, "node_rank": 0, **values})


def test_up_to_0_5_20_they_are_the_schedulers_arguments() -> None:
    rank = rank_of(ARGUMENTS, args())
    assert rank["tp"] == {"rank": 3, "size": 4} and rank["pp"] == {"rank": 1, "size": 2}
    assert rank["world"] == {"rank": 7, "size": 8}
    assert (rank["dp"], rank["ep"], rank["node"]) == (None, {"rank": 3, "size": 4}, 0)


def test_a_size_in_force_counts_before_the_one_that_was_given(publish: Any) -> None:
    publish(SimpleNamespace(moe_ep_rank=3, moe_ep_size=4, tp_rank=3, tp_size=4))
    rank = rank_of({}, args(ep_size=1))
    assert rank["ep"] == {"rank": 3, "size": 4}


def test_a_context_that_is_not_written_yet_does_not_hide_the_arguments(publish: Any) -> None:
    publish(Unpublished())
    assert rank_of(ARGUMENTS, args())["tp"] == {"rank": 3, "size": 4}


def test_under_dp_attention_the_rank_of_the_argument_stands_until_the_groups_are_there(publish: Any) -> None:
    class Parallel(Unpublished):
        attn_dp_size = 2
        dp_size = 1

    publish(Parallel())
    assert rank_of(ARGUMENTS | {"dp_rank": 1}, args(dp_size=2))["dp"] == {"rank": 1, "size": 2}


def test_under_dp_attention_it_is_the_attention_groups_rank_once_it_is_published(publish: Any) -> None:
    publish(SimpleNamespace(attn_dp_size=4, attn_dp_rank=3, dp_rank=0, dp_size=1))
    assert rank_of({}, args())["dp"] == {"rank": 3, "size": 4}


def test_replicas_are_counted_by_themselves_where_attention_is_not_in_groups(publish: Any) -> None:
    publish(SimpleNamespace(attn_dp_size=1, attn_dp_rank=0, dp_rank=0, dp_size=2))
    assert rank_of({}, args())["dp"] == {"rank": 0, "size": 2}


def test_the_runner_is_given_them_in_one_object(publish: Any) -> None:
    ps = SimpleNamespace(tp_rank=1, tp_size=2, pp_rank=0, pp_size=1, dp_rank=None, attn_dp_size=1, dp_size=1)
    assert rank_of({"ps": ps}, args(tp_size=None, pp_size=None))["tp"] == {"rank": 1, "size": 2}


@given(part=st.integers(-1, 8), size=st.one_of(st.none(), st.integers(-1, 8)))
def test_no_rank_is_said_of_a_size_that_it_cannot_be_of(part: int, size: int | None) -> None:
    found = rank_of({"tp_rank": part}, args(tp_size=size))["tp"]
    assert found is None or 0 <= found["rank"] < found["size"]
