"""What is not memory is said to be not memory, of a log as a whole and of lines in it."""

from __future__ import annotations

from typing import Any

import pytest

from sglang_probe.collect.logs.not_memory import HARMLESS, NOT_MEMORY
from sglang_probe.explain.model import Finding
from sglang_probe.explain.not_memory import OTHERS, other_in
from sglang_probe.timeline.logs.remarks import UNHEALTHY
from sglang_probe.timeline.model import Failure, Remark, Run
from tests.explain.explaining import findings
from tests.timeline.building import build_rank, build_run, build_step

TRITON = "out of resource: shared memory, Required: 131072, Hardware limit: 101376. Reducing block sizes may help."


def test_every_name_that_the_reader_gives_is_explained_and_none_else() -> None:
    assert {one.what for one in (*NOT_MEMORY, *HARMLESS)} | {UNHEALTHY} == {one.name for one in OTHERS}
    assert {one.what for one in HARMLESS} == {one.name for one in OTHERS if one.harmless}


def log_run(outcome: Any = "failed", failure: Failure | None = None, *remarks: Remark, **more: Any) -> Run:
    step = build_step("graph.capture", 1, 13.0, 12.4, 0.5, state="error" if failure else "open", failure=failure)
    known: dict[str, Any] = {"failed_phase": "graph.capture" if failure else None, "failed_label": "TP0"}
    known |= {"source": "log", "failure": failure, "remarks": remarks}
    return build_run((build_rank(0, 1, (step,)),), outcome, **{**known, **more})


def remark(kind: str, what: str, text: str, **more: Any) -> Remark:
    return Remark(kind=kind, what=what, text=text, place="serve.log:7", **more)


def not_memory(run: Run) -> list[Finding]:
    return [one for one in findings(run) if one.rule == "not_memory"]


@pytest.mark.parametrize(("kind", "message", "words"), [
    ("triton.runtime.errors.OutOfResources", TRITON, "shared memory of a GPU kernel"),
    ("RuntimeError", "unable to open shared memory object </torch_1> in read-write mode: shm_open failed", "/dev/shm"),
    ("OSError", "[Errno 98] Address already in use", "a port that is taken"),
    ("ImportError", "undefined symbol: _ZN3c10", "packages that are missing"),
    ("RuntimeError", "DefaultCPUAllocator: can't allocate memory", "the host's memory"),
])  # fmt: skip
def test_an_error_that_is_not_the_device_s_memory_leads_as_what_it_is(kind: str, message: str, words: str) -> None:
    lead = findings(log_run("failed", Failure(type=kind, message=message)))[0]

    assert ("not_memory", "error", "certain") == (lead.rule, lead.severity, lead.confidence)
    assert words in lead.says
    assert "not the device's memory" in lead.says


def test_an_error_of_its_own_says_what_was_last_printed_as_free() -> None:
    (found,) = not_memory(log_run("failed", Failure(type="AssertionError", message="shapes differ")))

    assert "The last that was printed as free is 12.40 GiB: not memory" in found.says
    assert "likely" == found.confidence


def test_lines_that_only_look_fatal_are_one_finding_and_no_cause() -> None:
    lines = (
        remark("harmless", "leaked_semaphores", "resource_tracker: There appear to be 3 leaked semaphore objects"),
        remark("harmless", "nofile_limit", "Fail to set RLIMIT_NOFILE", count=2),
    )
    assert [] == not_memory(log_run("ready", None, *lines))  # nobody asks why a server is well
    (found,) = not_memory(log_run("unknown", None, *lines))

    assert "info" == found.severity
    assert "never a cause (serve.log:7)" in found.says
    assert "(serve.log:7 and 1 more)" in found.says
    assert sum(one.count for one in lines) == found.numbers["lines"]


@pytest.mark.parametrize(("outcome", "severity"), [("ready", "info"), ("unknown", "warning")])
def test_a_line_of_other_trouble_is_said_beside(outcome: str, severity: str) -> None:
    (found,) = not_memory(log_run(outcome, None, remark("not_memory", "hang", "watchdog timeout", label="TP1")))

    assert (severity, ("TP1",)) == (found.severity, found.ranks)
    assert "a rank that waits for another" in found.says


def test_a_process_that_was_killed_is_not_an_out_of_memory_error_of_the_device() -> None:
    ended = remark("ended", "killed", "scheduler TP0 exit code -9")
    run = log_run("died", None, ended, outcome_reason="exit code -9 (serve.log:7)")
    (found,) = [one for one in findings(run) if one.rule in {"not_memory", "host_memory"}]

    assert "signal 9" in found.says
    assert "error" == found.severity


def test_an_ordinary_text_is_none_of_these() -> None:
    assert other_in("Load weight begin. avail mem=76.63 GB") is None
