"""What a host does around a hooked function goes as it would without the probe."""

from __future__ import annotations

import copy
import gc
import logging
import os
import pickle
import signal
import sys
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from sglang_probe.agent import core
from sglang_probe.agent.pipeline import dumps
from sglang_probe.agent.writer import Writer
from sglang_probe.catalogue.targets import Target
from tests.agent.conftest import MODULE

MakeTarget = Callable[..., Target]


class Buffer:
    """Stands for a tensor that a failing function had allocated."""


@dataclass(frozen=True)
class FrozenError(Exception):
    """An exception that forbids every assignment, its traceback's too."""

    code: int


def call(function: Callable[[], Any]) -> Any:
    return function()


def test_a_caught_exception_does_not_keep_its_frames_alive(probe: Any, target: MakeTarget) -> None:
    hooked = probe.hook([target("call"), target("outer")], call=call, outer=lambda inside: inside())
    alive: list[weakref.ref[Buffer]] = []

    def fail() -> None:
        buffer = Buffer()
        alive.append(weakref.ref(buffer))
        raise ValueError("the kernels are not here")

    def host() -> None:
        with suppress(ValueError):
            hooked.call(fail)
        gc.collect()
        assert alive[0]() is None

    hooked.outer(host)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="before 3.11 no frame is trimmed")
def test_a_frozen_exception_passes_as_itself(probe: Any, target: MakeTarget) -> None:
    hooked = probe.hook([target("call")], call=call)

    def fail() -> None:
        raise FrozenError(7)

    with pytest.raises(FrozenError):
        hooked.call(fail)


def test_an_exception_whose_text_exits_is_still_the_hosts_exception(probe: Any, target: MakeTarget) -> None:
    hooked = probe.hook([target("call")], call=call)

    class Mean(Exception):
        def __str__(self) -> str:
            raise SystemExit(3)

    def fail() -> None:
        raise Mean

    with pytest.raises(Mean):
        hooked.call(fail)


def test_a_timeout_raised_by_the_hosts_signal_handler_reaches_the_host(
    probe: Any, target: MakeTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    hooked = probe.hook([target("call")], call=call)

    class Timeout(Exception):
        pass

    def ring(*_: Any) -> None:
        raise Timeout

    def interrupted(*_: Any, **__: Any) -> Any:
        os.kill(os.getpid(), signal.SIGALRM)  # as if the alarm rang while our own code runs

    before = signal.signal(signal.SIGALRM, ring)
    try:
        monkeypatch.setattr(probe.agent, "reading", interrupted)
        with pytest.raises(Timeout):
            hooked.call(lambda: None)
    finally:
        signal.signal(signal.SIGALRM, before)


def test_a_hooked_function_pickles_and_copies_by_its_name(probe: Any, target: MakeTarget) -> None:
    module = ModuleType("picklable_made_up")
    exec("def function(): return 7", vars(module))
    hooked = probe.hook([target("function")], function=vars(module)["function"]).function
    module.function = hooked  # type: ignore[attr-defined]
    sys.modules[module.__name__] = module
    try:
        assert pickle.loads(pickle.dumps(hooked)) is hooked
        assert copy.deepcopy(hooked) is hooked
    finally:
        del sys.modules[module.__name__]


def test_a_home_that_became_a_property_is_left_alone(probe: Any, target: MakeTarget) -> None:
    class Runner:
        @property
        def load(self) -> int:
            return 7

    module = probe.hook([target("Runner.load"), target("CONSTANT")], Runner=Runner, CONSTANT=7)
    assert (module.Runner().load, module.CONSTANT) == (7, 7)
    assert set(probe.states().values()) == {"failed"}


def test_a_warning_with_a_broken_format_is_logged_as_it_would_be(
    probe: Any, target: MakeTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = "sglang.srt.distributed.device_communicators.custom_all_reduce"
    row = {"role": "allreduce.buffers", "reader": "allreduce.FIRST_FAMILY", "module": module}
    hooked = probe.hook(
        [target("CustomAllreduce.__init__", **row)],
        CustomAllreduce=type("CustomAllreduce", (), {"__init__": lambda self, body: body(), "disabled": True}),
    )
    logger = logging.getLogger(module)
    records: list[logging.LogRecord] = []
    handler = logging.Handler()
    monkeypatch.setattr(handler, "emit", records.append)
    monkeypatch.setattr(logger, "propagate", False)  # pytest's own handler raises on a broken format
    logger.addHandler(handler)
    try:
        hooked.CustomAllreduce(lambda: logger.warning("%d ranks", "two"))
        hooked.CustomAllreduce(lambda: logger.warning("disabled because of %s", "a test"))
    finally:
        logger.removeHandler(handler)
    assert len(records) == 2 and logger.filters == []
    told = [event["attributes"].get("disabled_reason") for event in probe.memory() if event["kind"] == "end"]
    assert told == [None, "disabled because of a test"]


def test_threads_that_start_the_agent_together_start_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SGLANG_PROBE_DIR", str(tmp_path))
    monkeypatch.setattr(core, "_agent", None)
    together, agents = threading.Barrier(4, timeout=20), list[core.Agent]()

    def start() -> None:
        together.wait()
        agents.append(core.agent())

    threads = [threading.Thread(target=start) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id(agent) for agent in agents}) == 1


def test_a_host_that_closes_every_descriptor_keeps_its_own_files_clean(probe: Any, tmp_path: Path) -> None:
    writer: Writer = probe.agent.writer
    writer.write(b"first")
    assert writer._fd is not None
    os.close(writer._fd)  # as os.closerange of a daemon does
    with (tmp_path / "hosts").open("wb", buffering=0) as file:
        if file.fileno() != writer._fd:
            os.dup2(file.fileno(), writer._fd)
        assert writer.write(b"second")
        assert (tmp_path / "hosts").read_bytes() == b""
    assert Path(writer.path()).read_bytes() == b"first\nsecond\n"


def test_a_run_directory_that_was_removed_is_made_again(probe: Any) -> None:
    writer: Writer = probe.agent.writer
    writer.write(b"gone")
    Path(writer.path()).unlink()
    assert writer.write(b"here")
    assert Path(writer.path()).read_bytes() == b"here\n"


def test_a_hook_that_another_tool_called_through_is_not_displaced(probe: Any, target: MakeTarget) -> None:
    module = probe.hook([target("call")], call=call)
    hook = module.call

    def patched(function: Callable[[], Any]) -> Any:  # no __wrapped__, as most patches are
        return hook(function)

    module.call = patched
    module.call(lambda: None)
    probe.agent.report_displaced()
    assert probe.states() == {"call": "applied"}


def test_bytes_that_are_no_utf8_are_written_as_json_that_strict_readers_take() -> None:
    assert b"\\ud" not in dumps({"argv": ["caf\udce9"], "k\udcff": "\udcff"})


def test_a_span_that_could_not_be_opened_leaves_nothing_behind(
    probe: Any, target: MakeTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    hooked = probe.hook([target("call", role="graph.capture"), target("other", root_only=True)], call=call, other=call)

    def broken(**_: Any) -> Any:
        raise RuntimeError("no reading today")

    with monkeypatch.context() as patch:
        patch.setattr(probe.agent, "reading", broken)
        hooked.call(lambda: None)
    hooked.other(lambda: None)
    begin, end = probe.memory()
    assert (begin["attributes"]["target"], end["kind"]) == (f"{MODULE}:other", "end")
    assert begin["before"]["host_rss_bytes"] is not None  # no graph is being captured any more
