"""Real servers with the probe in them behave as they do without it."""

from __future__ import annotations

import re

import pytest

from lanes.rows import ROWS
from lanes.runs import Run, Served

pytestmark = [pytest.mark.lane, pytest.mark.parametrize("version", ROWS)]
at_both_sizes = pytest.mark.parametrize("tp", [1, 2])


def printed(run: Run) -> set[str]:
    """The kinds of lines on stdout but for the answers of the web server, which depend on when it was asked."""
    lines = (line for line in run.stdout.splitlines() if " HTTP/1.1" not in line)
    return {re.sub(r"\d+", "N", line) for line in lines}


@at_both_sizes
def test_the_server_says_the_same_tokens_with_and_without_the_probe(version: str, tp: int, served: Served) -> None:
    bare, probed = served(version, tp, "bare"), served(version, tp, "probed")
    assert all(answer.tokens for answer in bare.answers)
    assert bare.answers == probed.answers


@at_both_sizes
def test_the_probe_prints_nothing_where_all_is_well(version: str, tp: int, served: Served) -> None:
    run = served(version, tp, "probed")
    assert printed(served(version, tp, "bare")) == printed(run)
    assert [] == run.said()


@at_both_sizes
def test_a_server_without_the_probe_leaves_no_file_of_it(version: str, tp: int, served: Served) -> None:
    assert not served(version, tp, "bare").directory.exists()


def test_the_run_command_serves_the_same_tokens_and_records_them(version: str, served: Served) -> None:
    run = served(version, 2, "run")
    assert served(version, 2, "bare").answers == run.answers
    assert {"sglang.memory.scheduler.init.end"} <= {event["event"] for event in run.events()}
    assert [] == run.said()
