"""The fake 0.5.14 beside recordings of the real one on two H200: same events, same log lines, same arithmetic."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from sglang_probe.testing import MIB, Card, Costs, FakeServer, Model, Scenario
from sglang_probe.testing.core import allreduce
from sglang_probe.testing.core.allocator import LARGE_STEP, SMALL_SEGMENT

RELEASE = "0.5.14"
COMMON = "--tp 2 --load-format dummy --skip-tokenizer-init --attention-backend triton --sampling-backend pytorch "
COMMON += "--grammar-backend none --disable-piecewise-cuda-graph --cuda-graph-max-bs 8"
ADDED = {"car": "", "nocar": "--disable-custom-all-reduce", "lowfrac": "--mem-fraction-static 0.03"}
"""The command lines of the recordings, as tests/data/README.md has them."""

Event = dict[str, Any]
Ranks = dict[int, list[Event]]


def memory_events(directory: Path) -> Ranks:
    """Return the memory events of each rank, by world rank."""
    found: Ranks = {}
    for path in sorted(directory.rglob("*.jsonl")):
        events = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.endswith("}")]
        of_memory = [event for event in events if event["role"] and event["kind"]]
        if of_memory:
            found[of_memory[-1]["rank"]["world"]["rank"]] = of_memory
    return found


@pytest.fixture(scope="module")
def recorded(root: Path) -> Path:
    return root / "tests" / "data" / f"h200-x2-sglang-{RELEASE}"


@pytest.fixture(scope="module")
def fake(tmp_path_factory: pytest.TempPathFactory, root: Path, recorded: Path) -> Callable[[str], tuple[str, Ranks]]:
    """Repeat a recording with the fakes on cards like its own; return the log and the events."""

    @cache
    def repeat(name: str) -> tuple[str, Ranks]:
        directory = tmp_path_factory.mktemp(name)
        run = FakeServer(
            directory,
            scenario_of(memory_events(recorded / name), with_allreduce=name != "nocar"),
            release=RELEASE,
            arguments=[*COMMON.split(), *fraction_of(memory_events(recorded / name)), *ADDED[name].split()],
            pythonpath=[root],
            environment={"SGLANG_PROBE_DIR": str(directory / "runs")},
        ).run()
        return run.log, memory_events(directory / "runs")

    return repeat


def pick(events: list[Event], role: str, kind: str, **attributes: str) -> Event:
    """Return the one event of a role with these attributes."""
    wanted = [event for event in events if event["role"] == role and event["kind"] == kind]
    (one,) = [e for e in wanted if all(e["attributes"].get(key) == value for key, value in attributes.items())]
    return one


def fraction_of(ranks: Ranks) -> list[str]:
    """Return the flag for the fraction that was in force: SGLang derives it from the card where none is given."""
    (fraction,) = {terms["mem_fraction_static"] for terms in budgets(ranks).values()}
    return ["--mem-fraction-static", repr(fraction)]


def scenario_of(ranks: Ranks, *, with_allreduce: bool) -> Scenario:
    """Return cards and costs that are the recording's, to the byte."""
    first = pick(ranks[0], "dist.communicator", "begin", communicator="ProcessGroup")["before"]
    model = Model(architecture="LlamaForCausalLM", layers=16, kv_heads=8, head_dim=128, context_len=8192)
    return Scenario(
        gpus=2,
        card=Card(
            name=ranks[0][-1]["device"]["name"],
            nvml_total_bytes=first["nvml_total_bytes"],
            nvml_reserved_bytes=first["nvml_reserved_bytes"],
            cuda_total_bytes=first["device_total_bytes"],
            context_bytes=first["device_total_bytes"] - first["device_free_bytes"],
        ),
        model=model,
        costs=Costs(decode_graph_torch_bytes=32 * MIB, decode_graph_bytes=32 * MIB),
        rank_costs={rank: costs_of(events, model.layers, with_allreduce) for rank, events in ranks.items()},
        serve=False,
    )


def costs_of(events: list[Event], layers: int, with_allreduce: bool) -> dict[str, int]:
    """Return what a rank paid; the communicator takes what the fake's all-reduce and torch do not cost."""
    begin = pick(events, "dist.communicator", "begin", communicator="ProcessGroup")["before"]["device_free_bytes"]
    world = pick(events, "dist.communicator", "end", communicator="ProcessGroup")["after"]["device_free_bytes"]
    load = pick(events, "weights.load", "begin")["before"]["device_free_bytes"]
    weights = load - pick(events, "weights.load", "end")["after"]["device_free_bytes"]
    in_tensors = weights // (layers * LARGE_STEP) * layers * LARGE_STEP
    return {
        "world_group_bytes": begin - world - SMALL_SEGMENT,
        "communicator_bytes": world - load - (allreduce.device_cost(2, 2) if with_allreduce else 0),
        "weights_torch_bytes": in_tensors,
        "weights_bytes": weights - in_tensors,
    }


@pytest.mark.parametrize("name", ADDED)
def test_the_probe_sees_the_same_calls_nested_and_ordered_alike(
    fake: Callable[[str], tuple[str, Ranks]], recorded: Path, name: str
) -> None:
    real, ours = memory_events(recorded / name), fake(name)[1]
    for rank, events in real.items():
        # Where a start fails, SGLang kills the slower rank before it has told all: then the shorter tells the same.
        told = None if name != "lowfrac" else min(len(events), len(ours[rank]))
        assert [outline(event) for event in events[:told]] == [outline(event) for event in ours[rank][:told]]
        assert "kv.profile" in {event["role"] for event in events[:told]}


def outline(event: Event) -> tuple[Any, ...]:
    """Return what an event is about, without its figures."""
    attributes, of_target = event["attributes"], ("target", "communicator", "group", "pool", "pool_class", "graph")
    return (event["event"], event["worker"], *(attributes.get(key) for key in of_target))


@pytest.mark.parametrize("name", ADDED)
def test_the_budget_comes_out_as_on_the_real_machine(
    fake: Callable[[str], tuple[str, Ranks]], recorded: Path, name: str
) -> None:
    real, ours = budgets(memory_events(recorded / name)), budgets(fake(name)[1])
    both = real.keys() & ours.keys()
    assert both
    keys = ("available_bytes", "pre_load_bytes", "mem_fraction_static", "rest_bytes", "result")
    for rank in both:
        assert {key: real[rank][key] for key in keys} == {key: ours[rank][key] for key in keys}
        assert ours[rank]["verified"] is True


def budgets(ranks: Ranks) -> dict[int, dict[str, Any]]:
    """Return the terms of the budget of each rank that got so far."""
    return {
        rank: event["attributes"]
        for rank, events in ranks.items()
        for event in events
        if event["role"] == "kv.profile" and event["kind"] != "begin"
    }


@pytest.mark.parametrize("name", ADDED)
def test_sglangs_log_has_the_same_lines_in_the_same_order(
    fake: Callable[[str], tuple[str, Ranks]], recorded: Path, name: str
) -> None:
    real = shapes((recorded / f"{name}.log").read_text(encoding="utf-8"))
    position = 0
    for line in shapes(fake(name)[0]):
        assert line in real[position:], f"the real server does not say this (any more): {line}"
        position = real.index(line, position) + 1


def shapes(log: str) -> list[str]:
    """Return rank 0's lines with every number as #, tracebacks reduced to the error."""
    lines = re.findall(r"^\[[\d :-]+ TP0\] (?!Scheduler hit)(.*)|^(\w+Error: .*)", log, flags=re.MULTILINE)
    return [re.sub(r"\d+(\.\d+)?", "#", message or error) for message, error in lines]


def test_the_tokens_are_the_real_servers(fake: Callable[[str], tuple[str, Ranks]], recorded: Path) -> None:
    for name in ("car", "nocar"):
        (real,) = set(re.findall(r"max_total_num_tokens=\d+", (recorded / f"{name}.log").read_text(encoding="utf-8")))
        assert f"{real}," in fake(name)[0]
