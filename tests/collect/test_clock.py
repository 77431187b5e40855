"""Wall time is read to the nanosecond, and the clocks of two hosts are tied by the end of their shared `dist.init`."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglang_probe.collect import CollectedRun, read
from sglang_probe.collect.clock import SECOND, wall_ns
from tests.collect.building import Host, Writer
from tests.collect.starting import Shape, rank, rank_of, write


@given(st.integers(0, 7_000_000_000), st.integers(0, SECOND - 1))
def test_a_moment_survives_being_written_and_read(seconds: int, ns: int) -> None:
    whole = datetime.fromtimestamp(seconds, timezone.utc)

    assert seconds * SECOND + ns == wall_ns(whole.strftime("%Y-%m-%dT%H:%M:%S") + f".{ns:09d}Z")


@pytest.mark.parametrize(
    "text", ["", "yesterday", "2026-11-29", "2026-13-45T00:00:00Z", "2026-11-29T18:45:00", "2026-11-29T18:45:00+02:00"]
)
def test_what_is_no_moment_in_utc_is_not_guessed(text: str) -> None:
    assert wall_ns(text) is None


def _two_hosts(tmp_path: Path, ahead_ns: int) -> CollectedRun:
    hosts = [Host("node-a", "boot-a"), Host("node-b", "boot-b", ahead_ns=ahead_ns)]
    for world, host in enumerate(hosts):
        writer = Writer(host, 70, "mine", start_ticks=1, rank=rank_of(world, 2))
        writer.start()
        write(tmp_path, [rank(writer, Shape(), "tcp://10.0.0.1:5000")])
    (run,) = read([tmp_path]).runs
    return run


@pytest.mark.parametrize("ahead_ns", [0, 7 * SECOND + 123, -3 * SECOND])
def test_the_skew_of_a_host_is_found_and_taken_out(tmp_path: Path, ahead_ns: int) -> None:
    run = _two_hosts(tmp_path, ahead_ns)

    (skew,) = run.skews
    assert ("node-b", "node-a", ahead_ns) == (skew.host, skew.against, skew.ahead)
    moments = [run.clock.at(member.boot, member.process.records[-1].mono_ns) for member in run.members]
    assert moments[0] == moments[1]


def test_the_skew_lies_within_its_bounds(tmp_path: Path) -> None:
    (skew,) = _two_hosts(tmp_path, 5 * SECOND).skews

    assert skew.at_least is not None
    assert skew.at_most is not None
    assert skew.at_least <= 5 * SECOND <= skew.at_most


def test_one_host_has_no_skew(tmp_path: Path) -> None:
    writer = Writer(Host(), 70, "mine", start_ticks=1, rank=rank_of(0, 1))
    writer.start()

    (run,) = read([write(tmp_path, [rank(writer, Shape())])]).runs

    assert () == run.skews
