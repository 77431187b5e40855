"""A scenario is data: it goes to JSON and comes back, and says what it does not know."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from sglang_probe.testing import Costs, Fault, Model, Scenario, Tenant
from sglang_probe.testing.core.scenario import from_dict, load_scenario

FULL = Scenario(
    gpus=2,
    model=Model(layers=3, kv_lora_rank=512),
    costs=Costs(communicator_bytes=1),
    rank_costs={1: {"communicator_bytes": 2}},
    tenants=(Tenant(gpu=0, pid=1, bytes=2, leaves_at="weights.load"),),
    faults=(Fault("kv.pool", "oom", ranks=(1,)),),
    phase_seconds={"weights.load": 0.5},
)


def test_a_saved_scenario_comes_back_the_same(tmp_path: Path) -> None:
    FULL.save(tmp_path)
    assert FULL == load_scenario(tmp_path)


def test_keys_left_out_keep_their_defaults() -> None:
    assert Scenario(gpus=4, costs=Costs(weights_bytes=5)) == from_dict({"gpus": 4, "costs": {"weights_bytes": 5}})
    assert Scenario() == from_dict(json.loads(json.dumps(asdict(Scenario()))))


@pytest.mark.parametrize("raw", [{"gpu": 1}, {"model": {"heads": 2}}, {"faults": [{"phase": "x", "why": 1}]}])
def test_a_key_that_no_scenario_has_is_named(raw: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"has no '(gpu|heads|why)'"):
        from_dict(raw)


def test_a_rank_may_pay_more_than_the_others() -> None:
    assert [1, 2] == [FULL.costs_of(rank).communicator_bytes for rank in (0, 1)]


def test_a_fault_strikes_its_ranks_in_its_phase() -> None:
    fault = Fault("kv.pool", "oom", ranks=(1,))
    assert [False, True, False] == [fault.hits("kv.pool", 0), fault.hits("kv.pool", 1), fault.hits("kv.profile", 1)]
    assert Fault("kv.pool", "oom").hits("kv.pool", 7)
