"""A hooked function behaves as it did: result, calls, exceptions, threads, forks. And its events tell what happened."""

from __future__ import annotations

import os
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sglang_probe.agent.calls import Call, Reader
from sglang_probe.catalogue.targets import TARGETS, Target

MakeTarget = Callable[..., Target]


class Refused(Exception):
    """A host's own exception."""


class Runner:
    """Stands for a class of SGLang's."""

    is_draft_worker = False

    def __init__(self) -> None:
        self.calls = 0
        self.answer = object()

    def outer(self, what: Callable[[], Any] | None = None) -> Any:
        self.calls += 1
        return self.inner(what)

    def inner(self, what: Callable[[], Any] | None = None) -> Any:
        return what() if what is not None else self.answer

    @staticmethod
    def shared(size: int) -> int:
        return size


def fresh() -> type[Runner]:
    """A class that no other test has hooked."""
    return type("Runner", (), dict(vars(Runner)))


def refuse() -> None:
    raise Refused("the host says no")


def test_the_result_is_the_identical_object_and_the_function_ran_once(probe: Any, target: MakeTarget) -> None:
    runner = probe.hook([target("Runner.outer")], Runner=fresh()).Runner()
    assert runner.outer() is runner.answer
    assert runner.calls == 1


def test_begin_and_end_share_a_span_and_nest(probe: Any, target: MakeTarget) -> None:
    module = probe.hook([target("Runner.outer"), target("Runner.inner", role="kv.profile")], Runner=fresh())
    module.Runner().outer()
    told = [(e["role"], e["kind"], e["span"]["id"], e["span"]["parent"]) for e in probe.memory()]
    outer, inner = told[0][2], told[1][2]
    assert told == [
        ("weights.load", "begin", outer, None),
        ("kv.profile", "begin", inner, outer),
        ("kv.profile", "end", inner, outer),
        ("weights.load", "end", outer, None),
    ]


def test_an_exception_passes_with_its_identity_and_its_own_traceback(probe: Any, target: MakeTarget) -> None:
    runner = probe.hook([target("Runner.outer"), target("Runner.inner")], Runner=fresh()).Runner()
    with pytest.raises(Refused, match="the host says no") as caught:
        runner.outer(refuse)
    stack = traceback.extract_tb(caught.value.__traceback__)
    frames = [frame.name for frame in stack if "wrapt" not in frame.filename]  # its own, where it runs without C
    ours = [name for name in frames if name == "sglang_probe_passthrough"]
    assert [name for name in frames if name not in ours][-3:] == ["outer", "inner", "refuse"]
    assert len(ours) == (0 if sys.version_info >= (3, 11) else 2)


def test_nested_errors_share_an_id_and_only_the_innermost_carries_the_text(probe: Any, target: MakeTarget) -> None:
    runner = probe.hook([target("Runner.outer"), target("Runner.inner")], Runner=fresh()).Runner()
    with pytest.raises(Refused):
        runner.outer(refuse)
    inner, outer = [event["exception"] for event in probe.memory() if event["kind"] == "error"]
    assert inner["id"] == outer["id"]
    assert (inner["message"], outer["message"], outer["stacktrace"]) == ("the host says no", None, None)
    assert inner["type"].endswith("Refused") and inner["raised_in"].startswith(f"{__name__}:refuse:")
    assert "sglang_probe_passthrough" not in inner["stacktrace"]


def test_two_exceptions_in_one_span_are_two(probe: Any, target: MakeTarget) -> None:
    runner = probe.hook([target("Runner.outer"), target("Runner.inner")], Runner=fresh()).Runner()

    def twice() -> None:
        for _ in range(2):
            with pytest.raises(Refused):
                runner.inner(refuse)

    runner.outer(twice)
    first, second = [event["exception"] for event in probe.memory() if event["kind"] == "error"]
    assert first["id"] != second["id"] and second["message"] == "the host says no"


def test_an_interrupt_passes_and_is_recorded(probe: Any, target: MakeTarget) -> None:
    runner = probe.hook([target("Runner.outer")], Runner=fresh()).Runner()

    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        runner.outer(interrupt)
    assert probe.memory()[-1]["exception"]["type"] == "KeyboardInterrupt"


def broken_reader(_: Call) -> dict[str, Any]:
    raise LookupError("this release has moved it")


@pytest.mark.parametrize("reader", [Reader(begin=broken_reader), Reader(end=broken_reader)])
def test_a_reader_that_raises_costs_its_attributes_and_is_reported(
    probe: Any, target: MakeTarget, reader: Reader
) -> None:
    runner = probe.hook([target("Runner.outer", reader=reader)], Runner=fresh()).Runner()
    assert runner.outer() is runner.answer
    assert [event["kind"] for event in probe.memory()] == ["begin", "end"]
    degraded = [item for event in probe.memory() for item in event["degraded"] if item["reason"] == "probe_error"]
    assert ["LookupError: this release has moved it"] == [item["detail"] for item in degraded]


@pytest.mark.parametrize("part", ["_open", "_close", "_emit_call", "reading"])
def test_a_hook_that_is_broken_through_and_through_leaves_the_host_alone(
    probe: Any, target: MakeTarget, part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = probe.hook([target("Runner.outer"), target("Runner.inner")], Runner=fresh())

    def explode(*_: Any, **__: Any) -> Any:
        raise RuntimeError("the probe is broken")

    monkeypatch.setattr(probe.agent, part, explode)
    runner = module.Runner()
    assert runner.outer() is runner.answer
    with pytest.raises(Refused):
        runner.outer(refuse)
    assert runner.calls == 2
    assert probe.agent.health.counts["hook:probe_error"] > 0


def test_a_static_method_stays_one(probe: Any, target: MakeTarget) -> None:
    module = probe.hook([target("Runner.shared")], Runner=fresh())
    assert (module.Runner.shared(3), module.Runner().shared(size=4)) == (3, 4)


def test_every_row_reports_what_became_of_it(probe: Any, target: MakeTarget) -> None:
    rows = [
        target("Runner.outer"),
        target("Runner.inner", unless="Runner.outer"),
        target("Runner.gone"),
        target("No.way"),
    ]
    probe.hook(rows, Runner=fresh())
    assert probe.states() == {
        "Runner.outer": "applied",
        "Runner.inner": "nested",
        "Runner.gone": "absent",
        "No.way": "absent",
    }


def test_an_inherited_function_is_hooked_where_it_is_defined_and_nowhere_else(probe: Any, target: MakeTarget) -> None:
    base = fresh()
    child = type("Child", (base,), {})
    probe.hook([target("Child.outer"), target("Runner.outer")], Runner=base, Child=child)
    assert probe.states() == {"Child.outer": "absent", "Runner.outer": "applied"}


def test_a_row_that_cannot_be_applied_does_not_take_the_others_along(probe: Any, target: MakeTarget) -> None:
    class Sealed(type):
        def __setattr__(cls, name: str, value: Any) -> None:
            raise TypeError("sealed")

    sealed = Sealed("Sealed", (), {"outer": Runner.outer})
    probe.hook([target("Sealed.outer"), target("Runner.outer")], Sealed=sealed, Runner=fresh())
    assert probe.states() == {"Sealed.outer": "failed", "Runner.outer": "applied"}


def test_a_hook_that_somebody_replaced_is_reported(probe: Any, target: MakeTarget) -> None:
    module = probe.hook([target("Runner.outer"), target("Runner.inner")], Runner=fresh())
    kept = vars(module.Runner)["inner"]

    def over_it(self: Any, *args: Any) -> Any:
        return kept.__get__(self, type(self))(*args)

    over_it.__wrapped__ = kept  # type: ignore[attr-defined]
    module.Runner.inner = over_it
    module.Runner.outer = lambda self: None
    probe.agent.report_displaced()
    assert probe.states() == {"Runner.outer": "displaced", "Runner.inner": "applied"}


def test_an_observer_writes_no_memory_event(probe: Any, target: MakeTarget) -> None:
    module = probe.hook([target("Runner.outer", role=None, use="observe")], Runner=fresh())
    module.Runner().outer()
    assert probe.memory() == []


def test_a_sample_is_one_event_with_the_reading_of_the_moment(probe: Any, target: MakeTarget) -> None:
    module = probe.hook([target("Runner.outer", use="sample")], Runner=fresh())
    module.Runner().outer()
    (event,) = probe.memory()
    assert (event["kind"], event["before"], event["delta"]) == ("sample", None, None)
    assert event["after"]["host_available_bytes"] > 0


def test_a_root_row_is_silent_inside_another_span(probe: Any, target: MakeTarget) -> None:
    rows = [target("Runner.outer"), target("Runner.inner", root_only=True)]
    module = probe.hook(rows, Runner=fresh())
    module.Runner().outer()
    assert [e["attributes"]["target"].partition(":")[2] for e in probe.memory()] == ["Runner.outer", "Runner.outer"]
    module.Runner().inner()
    assert probe.memory()[-1]["attributes"]["target"].endswith(":Runner.inner")


def test_a_draft_workers_events_say_so_and_its_children_inherit_it(probe: Any, target: MakeTarget) -> None:
    runner_class = fresh()
    module = probe.hook([target("Runner.outer"), target("Runner.shared")], Runner=runner_class)
    runner = module.Runner()
    runner.is_draft_worker, runner.draft_model_idx = True, 2
    runner.outer(lambda: runner.shared(1))
    assert {(event["worker"], event["draft_index"]) for event in probe.memory()} == {("draft", 2)}


def test_threads_do_not_mix_their_spans(probe: Any, target: MakeTarget) -> None:
    module = probe.hook([target("Runner.outer"), target("Runner.inner")], Runner=fresh())
    both_inside = threading.Barrier(2, timeout=20)

    def run() -> None:
        module.Runner().outer(both_inside.wait)

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    spans = {event["span"]["id"]: event for event in probe.memory()}
    roots = [span for span, event in spans.items() if event["span"]["parent"] is None]
    children = sorted(event["span"]["parent"] for event in spans.values() if event["span"]["parent"] is not None)
    assert len(roots) == 2 and children == sorted(roots)


def test_a_forked_child_has_its_own_file_sequence_and_empty_stack(probe: Any, target: MakeTarget) -> None:
    module = probe.hook([target("Runner.outer"), target("Runner.inner")], Runner=fresh())
    os.register_at_fork(after_in_child=probe.agent.after_fork)

    def fork() -> int:
        pid = os.fork()
        if pid == 0:
            module.Runner().inner()
            os._exit(0)
        return os.waitpid(pid, 0)[1]

    assert module.Runner().outer(fork) == 0
    parent = Path(probe.agent.writer.path())
    (child,) = [file for file in parent.parent.iterdir() if file != parent]
    events = probe.events(str(child))
    assert [(event["seq"], event["span"]["parent"]) for event in events] == [(0, None), (1, None)]
    assert {event["pid"] for event in events} == {int(child.name.split(".")[-3])}
    assert {event["pid"] for event in probe.events()} == {os.getpid()}


def test_no_row_names_a_multiprocessing_entry_point() -> None:
    # A wrapt proxy on one makes Process.start fail to pickle it.
    assert [target.name for target in TARGETS if "run_" in target.path and "_process" in target.path] == []


def test_every_row_says_why_it_is_there_and_is_there_once() -> None:
    assert all(target.why for target in TARGETS)
    assert len({target.name for target in TARGETS}) == len(TARGETS)


def root(target: MakeTarget) -> Target:
    return target("Runner.outer", role="scheduler.init")


def test_a_rank_without_a_memory_role_is_an_error_of_the_probe(probe: Any, target: MakeTarget) -> None:
    probe.hook([root(target)], Runner=fresh()).Runner().outer()
    (event,) = [event for event in probe.events() if event["event"] == "sglang.probe.degraded"]
    assert event["level"] == "error" and event["attributes"]["no_memory_role"] is True


def test_a_rank_that_missed_nothing_says_nothing_about_itself(probe: Any, target: MakeTarget) -> None:
    probe.agent.identity.use_device("cpu", 0)
    probe.hook([root(target), target("Runner.inner")], Runner=fresh()).Runner().outer()
    assert [event for event in probe.events() if event["event"] == "sglang.probe.degraded"] == []


def test_events_that_a_full_disk_swallowed_are_counted_in_the_file_once_there_is_room(
    probe: Any, target: MakeTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = probe.hook([root(target), target("Runner.inner")], Runner=fresh()).Runner()
    real = os.write

    def full(fd: int, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    def inner() -> None:
        monkeypatch.setattr(os, "write", real)

    monkeypatch.setattr(os, "write", full)
    runner.outer(inner)
    (event,) = [event for event in probe.events() if event["event"] == "sglang.probe.degraded"]
    assert event["attributes"]["dropped_events"] == len(["begin of the root", "begin inside"])


def test_a_call_through_the_class_says_the_same_as_one_through_the_instance(probe: Any, target: MakeTarget) -> None:
    """As later patches and SGLang's own plugins call it: `before = Runner.load; before(runner, 3, rank=2)`."""
    told: list[dict[str, Any]] = []

    def listen(call: Any) -> dict[str, Any]:
        told.append(dict(call.arguments))
        return {}

    class Runner:
        def load(self, size: int, rank: int = 0) -> int:
            return size

        @staticmethod
        def share(size: int) -> int:
            return size

    reader = Reader(begin=listen)
    rows = [target("Runner.load", reader=reader), target("Runner.share", reader=reader)]
    hooked = probe.hook(rows, Runner=Runner).Runner
    runner = hooked()
    runner.load(3, rank=2)
    hooked.load(runner, 3, rank=2)
    hooked.share(5)
    runner.share(size=5)
    assert told == [{"size": 3, "rank": 2}] * 2 + [{"size": 5}] * 2


@pytest.mark.parametrize("raised", [SystemExit, GeneratorExit, type("Cancelled", (BaseException,), {})])
def test_whatever_a_property_of_the_hosts_raises_its_function_is_called(
    probe: Any, target: MakeTarget, raised: type[BaseException]
) -> None:
    def broken(call: Any) -> dict[str, Any]:
        raise raised("from a property")

    runner = probe.hook([target("Runner.outer", reader=Reader(begin=broken, end=broken))], Runner=fresh()).Runner()
    assert runner.outer() is not None
    assert any(event["degraded"] for event in probe.memory())

