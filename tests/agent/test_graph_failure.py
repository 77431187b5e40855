"""A graph capture that died says where; what its frames hold is looked at and let go."""

from __future__ import annotations

import gc
import json
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sglang_probe.agent.readers import graph
from sglang_probe.agent.readers.graph_failure import MOST_CAUSES, MOST_FRAMES, Died, died
from sglang_probe.cli.doorbell import doorbell_directory
from sglang_probe.testing import RELEASES, FakeServer, Fault, Scenario

RUNNER = """
class Buffers:
    @classmethod
    def create(cls, short):
        short("buffers")

class GraphRunner:
    def __init__(self, short, size_of=int):
        self.short, self.size_of = short, size_of
        self.capture_bs = [1, 2, 4]
        Buffers.create(short)
        try:
            self.capture()
        except RuntimeError as error:
            raise Exception(f"Capture cuda graph failed: {error}")

    def capture(self):
        def _capture_one_stream():
            self.short("between")
            for bs in reversed(self.capture_bs):
                self.capture_one_shape(self.size_of(bs), None)
        self.warmup()
        _capture_one_stream()

    def warmup(self):
        self.short("warmup")

    def capture_one_shape(self, size, forward):
        self.short(size)
"""


class Held:
    """Stands for a tensor of a frame."""


def runner(module: str = "sglang.srt.model_executor.runner.made_up_graph_runner") -> Any:
    """Return the class of RUNNER, in a module of that name."""
    space: dict[str, Any] = {"__name__": module}
    exec(compile(RUNNER, "runner.py", "exec"), space)
    return space["GraphRunner"]


def raising(at: object, what: type[BaseException] = RuntimeError) -> Callable[[object], None]:
    """Return what raises when it is called with `at`."""

    def short(where: object) -> None:
        if where == at:
            raise what("CUDA out of memory")

    return short


def error_of(function: Callable[..., object], *arguments: object) -> BaseException:
    with pytest.raises(BaseException, match=r"memory|again|round") as caught:
        function(*arguments)
    return caught.value


@pytest.mark.parametrize(
    ("at", "size", "function"),
    [
        (2, 2, "GraphRunner.capture_one_shape"),
        ("warmup", None, "GraphRunner.warmup"),
        ("between", None, "_capture_one_stream"),
        ("buffers", None, "Buffers.create"),
    ],
)
def test_the_innermost_of_the_capture_s_functions_is_told_and_its_size(
    at: object, size: int | None, function: str
) -> None:
    told = died(error_of(runner(), raising(at)))
    assert (size, [1, 2, 4], "GraphRunner") == (told.size, told.sizes, told.runner_class)
    assert function.endswith(str(told.function))  # 3.10 does not tell the class


def test_a_size_that_is_no_plain_number_is_not_told() -> None:
    assert died(error_of(runner(), raising("4"), str)).size is None


def test_functions_of_the_same_names_elsewhere_are_not_sglang_s_capture() -> None:
    assert Died() == died(error_of(runner("torch.cuda.made_up_graph_runner"), raising(2)))
    assert Died() == died(error_of(runner("sglang.srt.layers.made_up"), raising(2)))


def test_an_attempt_before_is_not_the_one_that_ended_it() -> None:
    def twice() -> None:
        try:
            runner()(raising(2))
        except Exception:  # noqa: BLE001  # SGLang's own
            runner()(raising("buffers"))

    assert died(error_of(twice)).size is None


def test_what_was_raised_from_an_error_is_about_it_wherever_it_was_raised() -> None:
    def anew(error: BaseException) -> None:
        raise ValueError("again") from error

    assert died(error_of(anew, error_of(runner(), raising(2)))).size == 2


def test_an_earlier_error_of_another_function_is_not_followed() -> None:
    earlier = error_of(runner(), raising(2))
    later = error_of(runner(), raising("buffers"))
    later.__context__ = earlier
    assert died(later).size is None


def test_a_round_of_causes_and_a_deep_traceback_end() -> None:
    error = error_of(runner(), raising(2))
    error.__cause__ = error
    assert died(error).size is None
    assert MOST_CAUSES * MOST_FRAMES < 10_000

    def deep(left: int) -> None:
        if left:
            deep(left - 1)
        runner()(raising(2))

    assert died(error_of(deep, MOST_FRAMES)).size in (None, 2)


def test_what_the_frames_held_goes_with_the_exception() -> None:
    held: list[weakref.ref[Held]] = []

    def short(where: object) -> None:
        tensor = Held()
        held.append(weakref.ref(tensor))
        raising(2)(where)

    def told() -> tuple[int | None, bool]:
        try:
            runner()(short)
        except Exception as error:  # noqa: BLE001  # SGLang's own
            return died(error).size, held[-1]() is not None
        return None, False

    gc.disable()
    try:
        assert (2, True) == told()
        assert [None] * len(held) == [one() for one in held]
    finally:
        gc.enable()


def test_objects_that_do_not_bear_to_be_looked_at_cost_the_place_and_not_the_event() -> None:
    class Hostile(runner()):  # type: ignore[misc]
        @property
        def capture_bs(self) -> Any:
            raise ZeroDivisionError

        @capture_bs.setter
        def capture_bs(self, _: Any) -> None:
            pass

    said = graph._failed("decode", error_of(Hostile, raising("buffers")))
    assert {"graph": "decode", "failed_size": None, "failed_at": None, "sizes": None}.items() <= said.items()
    assert said["captured"] is None


def _errors(runs: Path) -> Iterator[dict[str, Any]]:
    for file in runs.glob("*/*.jsonl"):
        for line in file.read_text().splitlines():
            event = json.loads(line)
            if event["event"] == "sglang.memory.graph.capture.error":
                yield event


@pytest.mark.parametrize("release", RELEASES)
def test_the_event_of_a_server_that_runs_short_has_size_and_function(tmp_path: Path, release: str) -> None:
    scenario = Scenario(gpus=1, serve=False, faults=(Fault("graph.capture", "oom"),))
    runs = tmp_path / "runs"
    server = FakeServer(
        tmp_path,
        scenario,
        release=release,
        pythonpath=[doorbell_directory()],
        environment={"SGLANG_PROBE_DIR": str(runs), "SGLANG_PROBE_RUN_ID": "run"},
    )
    assert server.run().returncode != 0
    said = [event["attributes"] for event in _errors(runs)]
    assert said
    for one in said:
        assert (max(one["sizes"]), None) == (one["failed_size"], one["captured"])
        assert one["failed_at"].rpartition(".")[2] in ("capture_one_shape", "capture_one_batch_size")
        assert one["runner_class"] in ("PrefillCudaGraphRunner", "CudaGraphRunner")  # what captures first
