"""The probe, injected into a fake server as into a real one: what it says is what happened, and it costs nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from sglang_probe.events.jsonschema import event_schema
from sglang_probe.testing import GIB, RELEASES, FakeGpus, FakeServer, Scenario, Taken
from sglang_probe.testing import story as make_story
from sglang_probe.testing.gpu import sums
from sglang_probe.testing.story import AVAILABLE_MINIMUM, PRE_LOAD_MINIMUM, RANKS, arguments

AGENT = "sglang_probe.agent"
HARMLESS = {
    "torch.cuda.is_initialized",
    "torch._C._cuda_hasPrimaryContext",
    "torch.cuda.mem_get_info",
    "torch.cuda.host_memory_stats_as_nested_dict",
    "torch.cuda.memory_stats_as_nested_dict",
    "torch.cuda.memory_snapshot",
    "torch.cuda.is_current_stream_capturing",
    "torch.cuda.get_device_properties",
    "pynvml.nvmlInit",
    "pynvml.nvmlDeviceGetHandleByUUID",
    "pynvml.nvmlDeviceGetMemoryInfo",
    "pynvml.nvmlDeviceGetComputeRunningProcesses",
    "pynvml.nvmlSystemGetDriverVersion",
}
ALLOWED_WHILE_CAPTURING = {"torch.cuda.is_initialized", "torch.cuda.is_current_stream_capturing"}

CUBLAS_WITHIN = {"0.5.9": (), "0.5.14": ("cublas",)}
"""0.5.9 makes the cuBLAS workspace between two hooked functions."""

Event = dict[str, Any]


@dataclass(frozen=True)
class Probed:
    """A fake server that ran with the probe (or, for comparison, without) and its events by pid."""

    gpus: FakeGpus
    log: str
    events: dict[int, list[Event]]

    def memory(self, pid: int, role: str, *kinds: str) -> list[Event]:
        return [event for event in self.events[pid] if event["role"] == role and event["kind"] in kinds]

    @property
    def ranks(self) -> dict[int, int]:
        """World rank -> pid."""
        found = {}
        for pid, events in self.events.items():
            known = [event["rank"]["world"]["rank"] for event in events if event["rank"]]
            found.update({known[-1]: pid} if known else {})
        return found


Start = Callable[..., Probed]


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory, root: Path) -> Start:
    """Run a fake server to its end, once for each set of arguments."""

    @cache
    def run(release: str, flags: tuple[str, ...], scenario_name: str = "healthy", probe: bool = True) -> Probed:
        directory = tmp_path_factory.mktemp("probed")
        scenario = make_story(release) if scenario_name == "story" else Scenario(gpus=2, serve=False)
        server = FakeServer(
            directory,
            scenario,
            release=release,
            arguments=flags,
            pythonpath=[root] if probe else [],
            environment={"SGLANG_PROBE_DIR": str(directory / "runs")},
        )
        ended = server.run()
        events = {int(path.name.split(".")[-3]): list(_read(path)) for path in directory.glob("runs/*/*.jsonl")}
        return Probed(ended.gpus, ended.log, events)

    return run


def _read(path: Path) -> Iterator[Event]:
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            yield json.loads(line)
        except ValueError:
            assert line == path.read_text(encoding="utf-8").splitlines()[-1], "only the last line may be torn"


@pytest.fixture(params=RELEASES)
def release(request: pytest.FixtureRequest) -> str:
    return str(request.param)


TP2 = ("--tp", "2")
EAGLE = (*TP2, "--speculative-algorithm", "EAGLE")


def cost(events: list[Event]) -> int:
    """Return what the device lost over these spans."""
    return -sum(int(event["delta"]["device_free_bytes"]) for event in events)


def held(taken: dict[str, Taken], *labels: str) -> int:
    return sum(taken[label].device_bytes for label in labels if label in taken)


def outermost(events: list[Event]) -> list[Event]:
    """Return the spans that lie within no other of the list."""
    own = {event["span"]["id"] for event in events}
    return [event for event in events if event["span"]["parent"] not in own]


@pytest.mark.parametrize("flags", [TP2, EAGLE, (*TP2, "--disable-custom-all-reduce")], ids=["plain", "draft", "no AR"])
def test_the_cost_of_every_phase_is_what_the_card_lost(start: Start, release: str, flags: tuple[str, ...]) -> None:
    run = start(release, flags)
    assert [0, 1] == sorted(run.ranks)
    for rank, pid in run.ranks.items():
        taken = run.gpus.taken(gpu=rank, pid=pid)
        spans = {
            ("dist.communicator", "allreduce.buffers"): ("communicator", "custom_allreduce"),
            ("weights.load",): ("weights_target", "weights_draft"),
            ("kv.pool",): ("kv_pool", "request_pool"),
            ("attention.init",): ("attention_workspace", *CUBLAS_WITHIN[release]),
            ("graph.capture",): ("graphs",),
        }
        for roles, labels in spans.items():
            ends = [event for role in roles for event in run.memory(pid, role, "end")]
            assert held(taken, *labels) == cost(outermost(ends)), roles


def test_the_last_reading_is_the_card_as_it_was(start: Start, release: str) -> None:
    run = start(release, TP2)
    for rank, pid in run.ranks.items():
        (end,) = run.memory(pid, "scheduler.init", "end")
        taken = run.gpus.taken(gpu=rank, pid=pid)
        used, card = held(taken, *taken), run.gpus.scenario.card
        after = end["after"]
        assert (card.cuda_total_bytes - used, card.cuda_total_bytes) == (
            after["device_free_bytes"],
            after["device_total_bytes"],
        )
        assert (card.nvml_total_bytes, card.nvml_reserved_bytes, used) == tuple(
            after[f"nvml_{name}_bytes"] for name in ("total", "reserved", "used")
        )
        assert {pid: used} == {process["pid"]: process["bytes"] for process in after["nvml_processes"]}
        tensors = sum(part.torch_bytes for part in taken.values())
        assert tensors == after["torch_allocated_bytes"]
        assert run.gpus[rank].uuid == end["device"]["uuid"]


def test_the_probe_asks_only_what_is_harmless(start: Start, release: str) -> None:
    run = start(release, EAGLE)
    asked = run.gpus.calls(caller=AGENT)
    assert asked
    assert {call.name for call in asked} <= HARMLESS
    assert [] == [call for call in asked if call.made_context]
    assert [] == [call for call in asked if call.capturing and call.name not in ALLOWED_WHILE_CAPTURING]
    assert [] == [call for call in asked if call.name == "torch.cuda.mem_get_info" and not call.arguments]


def test_a_probe_that_made_a_context_would_be_caught(start: Start, release: str) -> None:
    made = [call for call in start(release, TP2).gpus.calls() if call.made_context]
    assert 2 == len(made), "SGLang makes one on each of its two cards, and the record shows it"
    assert {"torch.cuda.set_device"} == {call.name for call in made}


def test_the_cards_lose_nothing_to_the_probe(start: Start, release: str) -> None:
    with_probe, without = start(release, TP2), start(release, TP2, probe=False)
    assert {} == without.events
    for gpu in range(2):
        assert sums(without.gpus.records(gpu=gpu)) == sums(with_probe.gpus.records(gpu=gpu))


def test_sglang_says_the_same_with_and_without_the_probe(start: Start, release: str) -> None:
    said = [set(re.findall(r"KV Cache is allocated.*|max_total_num_tokens=\d+", start(release, TP2, probe=probe).log))
            for probe in (True, False)]  # fmt: skip
    assert said[0]
    assert said[0] == said[1]


def test_every_rank_that_got_so_far_tells_the_budget_of_the_story(start: Start, release: str) -> None:
    run = start(release, tuple(arguments()), "story")
    ends = [event for pid in run.ranks.values() for event in run.memory(pid, "kv.profile", "end", "error")]
    told = [event["attributes"] for event in ends]
    assert 1 <= len(told) <= RANKS
    for terms in told:
        assert (PRE_LOAD_MINIMUM, AVAILABLE_MINIMUM) == (terms["pre_load_bytes"], terms["available_bytes"])
        rest = AVAILABLE_MINIMUM / GIB - PRE_LOAD_MINIMUM / GIB * (1 - 0.55)
        assert int(rest * GIB) == terms["rest_bytes"]
        assert terms["verified"] is True
        assert 0.7692 == round(terms["minimum_viable_fraction"], 4)


def test_every_event_satisfies_the_schema(start: Start, release: str) -> None:
    validator = Draft202012Validator(event_schema())
    for run in (start(release, EAGLE), start(release, tuple(arguments()), "story")):
        events = [event for of_process in run.events.values() for event in of_process]
        assert events
        assert [] == [error.message for event in events for error in validator.iter_errors(event)]


def test_only_the_schedulers_touch_a_card(start: Start, release: str) -> None:
    run = start(release, TP2)
    roles = {events[-1]["pid"]: events[-1]["proc"]["role"] for events in run.events.values()}
    # The server ends as soon as it is ready: its detokenizer may not have come up by then.
    early = {"detokenizer", "other"}
    assert ["launcher", "scheduler", "scheduler"] == sorted(role for role in roles.values() if role not in early)
    holders = {record.pid for record in run.gpus.records()}
    assert holders == {pid for pid, role in roles.items() if role == "scheduler"}
    launcher = next(pid for pid, role in roles.items() if role == "launcher")
    initialising = [call for call in run.gpus.calls(name="torch.cuda.get_device_properties") if call.pid == launcher]
    assert initialising, "the launcher has CUDA initialised, so a careless reading there would make a context"
