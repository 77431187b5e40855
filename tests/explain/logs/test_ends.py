"""How a log ends: by a port that is taken, by an error after it was ready, by signal 9 first or as a consequence."""

from __future__ import annotations

import io

import pytest

from sglang_probe.collect.logs.read import read_log
from sglang_probe.report.outcome import headline
from sglang_probe.timeline.logs import run_of
from tests.explain.explaining import findings

LOAD = "[2030-01-01 00:00:01 TP0] Load weight begin. avail mem=76.63 GB"
READY = "[2030-01-01 00:00:02] The server is fired up and ready to roll!"
TAKEN = "ERROR:    [Errno 98] error while attempting to bind on address ('0.0.0.0', 30000): address already in use"
RAISED = (
    "[2030-01-01 00:00:03 TP0] Scheduler hit an exception: Traceback (most recent call last):\n"
    '  File "a.py", line 1, in f\n    g()\n{}\n'
)
OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.11 GiB of"
    " which 1.00 GiB is free."
)
QUIT = "[2030-01-01 00:00:04] Received sigquit from a child process. It usually means the child failed."
KILLED = "Killed"


def told(*lines: str) -> tuple[str, list[tuple[str, str]], str]:
    """Return the headline of a text, the (rule, severity) of its findings, and all that they say."""
    (log,) = read_log(io.BytesIO("\n".join(lines).encode()), "serve.log")
    run = run_of(log)
    found = findings(run)
    return headline(run), [(one.rule, one.severity) for one in found], " ".join(one.says for one in found)


@pytest.mark.parametrize(("lines", "says", "leads"), [
    ((LOAD, TAKEN), "FAILED: address already in use (serve.log:2)", ("not_memory", "error")),
    ((LOAD, READY, TAKEN), "READY, then ended: address already in use (serve.log:3)", ("not_memory", "error")),
    ((LOAD, READY, RAISED.format(OOM)), "READY; later torch.OutOfMemoryError (serve.log:3) on TP0",
     ("out_of_memory", "error")),
    ((LOAD, READY, RAISED.format("RuntimeError: no")), "READY; later RuntimeError (serve.log:3) on TP0",
     ("not_memory", "error")),
])  # fmt: skip
def test_the_headline_says_what_ended_it_and_a_finding_about_that_leads(
    lines: tuple[str, ...], says: str, leads: tuple[str, str]
) -> None:
    head, rules, _ = told(*lines)

    assert head == says
    assert rules[0] == leads


@pytest.mark.parametrize("before", [RAISED.format(OOM), QUIT])
def test_a_kill_after_an_error_or_after_sglang_ended_its_own_is_no_oom_killer(before: str) -> None:
    _, rules, says = told(LOAD, before, KILLED)

    assert "OOM killer" not in says.replace("kernel's OOM killer where the host was short, is likelier", "")
    assert "host_memory" not in [rule for rule, _ in rules]


def test_a_kill_that_comes_first_is_said_once_as_possibly_the_host_s_memory_with_its_phase() -> None:
    crashed = "[2030-01-01 00:00:03] Child process unexpectedly failed with an exit code -9. pid=4242"
    head, rules, says = told(LOAD, crashed, KILLED)

    assert head.startswith("DIED in weights.load")
    assert rules[0] == ("host_memory", "error")
    assert (1, 0) == (says.count("OOM killer"), sum(rule == "not_memory" for rule, _ in rules))


def test_lines_that_look_fatal_stand_last_and_not_at_all_where_the_server_is_well() -> None:
    quiet = "[2030-01-01 00:00:01] Fail to set RLIMIT_NOFILE: current limit exceeds maximum limit"

    assert "look" not in told(LOAD, quiet, READY)[2]
    assert told(LOAD, quiet, RAISED.format(OOM))[1][-1] == ("not_memory", "info")


def test_sentences_are_told_apart_by_full_stops_and_nothing_is_said_of_costs_that_no_line_has() -> None:
    advice = "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static."
    _, _, says = told(f"{advice} Current value: self.server_args.mem_fraction_static=0.2")

    assert "=0.2. No budget" in says
    assert "0 ranks" not in says and "no cost" not in says


def test_a_server_that_was_asked_to_stop_did_not_end_by_itself() -> None:
    stopped = "[2030-01-01 00:00:09] SIGTERM received. signum=None frame=None. Draining requests and shutting down..."
    crashed = "[2030-01-01 00:00:10] Subprocess scheduler_0 (pid=7) crashed with exit code -15. Triggering SIGQUIT for"

    assert told(LOAD, READY, stopped, crashed)[0] == "READY"
