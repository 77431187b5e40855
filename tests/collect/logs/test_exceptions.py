"""Exceptions in a log: which, its whole message, and what it says of memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from sglang_probe.collect.logs.memory_words import is_out_of_memory, no_memory
from sglang_probe.events.names import MAX_STACKTRACE_BYTES
from sglang_probe.explain.oom_message import is_host_memory, parse
from sglang_probe.explain.sayings import saying_in
from tests.collect.logs.reading_lines import kinds, read, values
from tests.collect.logs.telling import runs_of

TRACE = 'Traceback (most recent call last):\n  File "/s/scheduler.py", line 4211, in run\n    self.start()\n'
OOM = (
    "CUDA out of memory. Tried to allocate 252.00 MiB. GPU 0 has a total capacity of 139.80 GiB of which 154.31 MiB is"
    " free. Including non-PyTorch memory, this process has 139.64 GiB memory in use."
)
SHORT = "Not enough memory. Please try to increase --mem-fraction-static."
LOGS = sorted((Path(__file__).parents[2] / "data").glob("h200-*/*.log"))


@pytest.mark.parametrize(
    "lead",
    ["Scheduler hit an exception: ", "Exception in ModelTpServer:\n", "Exception in run_tp_server:\n",
     "TpModelWorkerClient hit an exception: ", "DataParallelController hit an exception: "],
)  # fmt: skip
def test_an_exception_that_ends_a_process_is_read_whole(lead: str) -> None:
    found = values(f"{lead}{TRACE}torch.OutOfMemoryError: {OOM}\n", "exception")

    assert {"type", "message", "stacktrace"} == set(found)
    assert ("torch.OutOfMemoryError", OOM) == (found["type"], found["message"])
    assert ["exception", "out_of_memory"] == kinds(f"{lead}{TRACE}torch.OutOfMemoryError: {OOM}\n")


def test_a_bare_line_is_an_exception() -> None:
    assert {"type": "RuntimeError", "message": SHORT} == values(f"RuntimeError: {SHORT}", "exception", prefixed=False)
    assert {"family": "fraction"} == values(f"RuntimeError: {SHORT}", "no_memory", prefixed=False)


def test_the_artefact_before_the_value_is_no_part_of_it() -> None:
    text = f"RuntimeError: {SHORT} Current value: self.server_args.mem_fraction_static=0.2"

    assert {"family": "fraction", "fraction": 0.2} == values(text, "no_memory", prefixed=False)


def test_both_numbers_of_weights_that_leave_nothing_are_read() -> None:
    text = (
        "ValueError: Loaded weights leave no GPU memory for the KV cache under --mem-fraction-static=0.88. Raise"
        " --mem-fraction-static above 0.912 (minimum viable = 1 - available/pre = 0.9113). If using speculative"
        " decoding, draft weights are now counted."
    )

    assert {"family": "weights", "fraction": 0.88, "raise_above": 0.912, "minimum": 0.9113} == values(
        text, "no_memory", prefixed=False
    )


def test_of_a_chain_the_last_is_the_exception_and_any_may_have_run_out_of_memory() -> None:
    chain = (
        f"Scheduler hit an exception: {TRACE}torch.OutOfMemoryError: {OOM}\n\nDuring handling of the above exception,"
        f" another exception occurred:\n\n{TRACE}Exception: Capture cuda graph failed\nPossible solutions:\n1. none"
    )

    assert ("Exception", "Capture cuda graph failed\nPossible solutions:\n1. none") == (
        values(chain, "exception")["type"], values(chain, "exception")["message"]
    )  # fmt: skip
    assert ["exception", "out_of_memory"] == kinds(chain)


def test_what_sglang_logs_and_survives_is_caught() -> None:
    assert values(f"Failed to prefetch: {TRACE}ValueError: none", "exception")["caught"] is True


IN_A_FINALIZER = 'Traceback (most recent call last):\n  File "/x/z.py", line 1, in __del__\n    free()\n'
IN_LOGGING = 'Traceback (most recent call last):\n  File "/py/logging/__init__.py", line 1, in emit\n    write(msg)\n'


@pytest.mark.parametrize("trace", [IN_A_FINALIZER, IN_LOGGING])
def test_what_python_always_goes_on_from_is_caught_with_what_it_says_of_memory(trace: str) -> None:
    text = f"{trace}RuntimeError: {OOM}"

    assert {"exception", "out_of_memory"} == set(kinds(text, prefixed=False))
    assert all(fact.values["caught"] is True for fact in read(text, prefixed=False))


@pytest.mark.parametrize(
    "line",
    [f"[Autotuner]: Skipping tactic <x.MoERunner object at 0x7f> 12, due to failure while profiling: {OOM}",
     "autotuner: Exception [CUDA out of memory. Tried to allocate 2.00 GiB] while tuning, skipping tactic",
     f"Multimodal processing failed: torch.OutOfMemoryError: {OOM}"],
)  # fmt: skip
def test_a_line_that_goes_on_from_an_error_is_caught(line: str) -> None:
    assert {"caught": True} == values(line, "out_of_memory")


@pytest.mark.parametrize("line", [f"torch.OutOfMemoryError: {OOM}", f"Scheduler hit an exception: {TRACE}E: {OOM}"])
def test_an_error_that_nothing_says_was_survived_is_not_caught(line: str) -> None:
    assert not any("caught" in fact.values for fact in read(line))


@pytest.mark.parametrize(
    ("before", "is_caught"),
    [("Exception ignored in: <function X.close at 0x1>", True), ("--- Logging error ---", True),
     ("[2030-01-01 00:00:00] ERROR:    Exception in ASGI application", True), ("Process Process-1:", False)],
)  # fmt: skip
def test_a_traceback_behind_what_announces_it_as_ignored_is_caught(before: str, is_caught: bool) -> None:
    (run,) = runs_of([f"{before}\n", *f"{TRACE}RuntimeError: {OOM}\n".splitlines(keepends=True)])

    assert ["exception", "out_of_memory"] == [fact.kind for fact in run.facts]
    assert [is_caught] * 2 == ["caught" in fact.values for fact in run.facts]


def test_of_a_long_stack_the_innermost_is_kept() -> None:
    frames = "".join(f'  File "/s/{number}.py", line 1, in f\n    f()\n' for number in range(2000))
    found = values(f"Scheduler hit an exception: {TRACE}{frames}ValueError: none", "exception")

    assert len(found["stacktrace"].encode()) <= MAX_STACKTRACE_BYTES
    assert found["stacktrace"].endswith("ValueError: none")


@pytest.mark.parametrize("indented", ["ValueError: first\n  second, indented", "ValueError: first\n\n  third"])
def test_a_message_of_several_lines_is_whole(indented: str) -> None:
    found = values(f"Scheduler hit an exception: {TRACE}{indented}", "exception")

    assert indented.removeprefix("ValueError: ") == found["message"]


@pytest.mark.parametrize(
    "message",
    [OOM, SHORT, "Prefill out of memory. Try to lower your batch size.", "Memory pool size is too small",
     "Not enough space for mamba cache, try to increase --max-mamba-cache-size.", "CUDA error: out of memory",
     "NCCL Error 1: unhandled cuda error, Failed to CUDA calloc 4 bytes", "CUBLAS_STATUS_ALLOC_FAILED when calling",
     "alloc_req_slots runs out of memory. Please set a smaller number", "DefaultCPUAllocator: not enough memory",
     "out of resource: shared memory, Required: 1, Hardware limit: 2", "unable to open an object in /dev/shm",
     "decode out of memory happened", "std::bad_alloc", "none of these"],
)  # fmt: skip
def test_what_ran_out_is_what_explain_says(message: str) -> None:
    retracted = message == "decode out of memory happened"  # which is no failure, and no exception

    assert (parse(message) is not None) == is_out_of_memory(message)
    assert (saying_in(message) is not None) == (no_memory(message) is not None or retracted)
    assert not (is_host_memory(message) and is_out_of_memory(message))
