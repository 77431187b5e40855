"""Which run of a path is followed, when it is read again, and what time it is in it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from sglang_probe.cli import follow, follow_files
from sglang_probe.cli.errors import BadUse
from sglang_probe.cli.follow import Follower, Sight
from sglang_probe.cli.follow_choice import SILENCE_S
from sglang_probe.collect.read import Collected, read
from sglang_probe.collect.sources import JOIN_SLACK_NS
from tests.cli.conftest import as_written, failed_start

WriteRun = Callable[..., Path]
Events = list[dict[str, object]]
HERE = {"host": os.uname().nodename, "boot_id": Path("/proc/sys/kernel/random/boot_id").read_text().strip()}


def of(pid: int, events: Events, /, **more: object) -> Events:
    """Events of a process that runs here."""
    start = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    proc = {"start_ticks": start, "parent": 1, "role": "scheduler"}
    return [{**event, **HERE, "pid": pid, "proc": proc, **more} for event in events]


def mine(events: Events, **more: object) -> Events:
    """Events of this very process."""
    return of(os.getpid(), events, **more)


def elsewhere(events: Events, **more: object) -> Events:
    return [{**event, "boot_id": "no-boot-of-this-machine", **more} for event in events]


def open_start(**more: object) -> Events:
    return failed_start(**more)[:3]


def long_ago(run: Path, seconds: float) -> None:
    """Make a run old: its directory and its files."""
    moment = time.time() - seconds
    for path in (*run.iterdir(), run):
        os.utime(path, (moment, moment))


def look(path: Path, *, named: bool = True) -> Sight:
    return Follower(str(path), named=named).look()


def test_a_start_that_goes_on_is_found_among_runs_that_are_over(write_run: WriteRun, tmp_path: Path) -> None:
    over = mine(failed_start(), pid=1 << 22)
    write_run(tmp_path / "a-over", [{**event, "run_id": "over"} for event in over])
    write_run(tmp_path / "b-alive", [{**event, "run_id": "alive"} for event in mine(open_start())])
    write_run(tmp_path / "c-over", [{**event, "run_id": "over-too"} for event in over])

    sight = look(tmp_path)

    assert sight.run is not None
    assert ("alive", "starting") == (sight.run.run_id, sight.run.outcome)
    assert sight.timeline is not None
    assert sight.timeline.runs == (sight.run,)


def test_runs_that_were_over_before_are_not_even_read(
    write_run: WriteRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        began = {"run_id": f"old-{number}", "ts": f"2026-11-0{3 - number}T18:45:00.000000000Z"}
        run = write_run(tmp_path / f"old-{number}", [{**one, **began} for one in failed_start()])
        long_ago(run, 3600 + number * JOIN_SLACK_NS / 1e9 * 2)
    given: list[tuple[str, ...]] = []

    def reading(paths: tuple[str, ...], **_: object) -> Collected:
        given.append(paths)
        return read(paths)

    monkeypatch.setattr(follow, "read", reading)

    sight = look(tmp_path)

    assert sight.run is None
    assert [(str(tmp_path / "old-0"),)] == given


def test_what_is_written_into_another_run_s_directory_makes_it_no_newer(write_run: WriteRun, tmp_path: Path) -> None:
    told = {"run_id": "old", "ts": "2026-11-01T18:45:00.000000000Z"}
    old = [{**one, **told} for one in mine(failed_start(), pid=1 << 22)]
    directory = write_run(tmp_path / "old", old)
    quiet = write_run(tmp_path / "quiet", [{**event, "run_id": "quiet"} for event in elsewhere(open_start())])
    follower = Follower(str(tmp_path), named=True)
    before = wait(follower, lambda sight: sight.run is not None)
    moment = time.time() - 90
    for path in (*quiet.iterdir(), quiet):
        os.utime(path, (moment, moment))
    (directory / "report.txt").write_text("a report")
    after = follower.look()

    assert [("quiet", 1)] * 2 == [(sight.run and sight.run.run_id, sight.serial) for sight in (before, after)]


def test_a_followed_run_is_not_left_when_a_second_server_begins(write_run: WriteRun, tmp_path: Path) -> None:
    first = write_run(tmp_path / "first", [{**event, "run_id": "first"} for event in mine(open_start())])
    follower = Follower(str(tmp_path), named=True)
    assert wait(follower, lambda sight: sight.run is not None).serial == 1
    long_ago(first, 300)
    later = {"run_id": "second", "ts": "2026-12-24T18:45:00.000000000Z"}
    write_run(tmp_path / "second", [{**event, **later} for event in mine(open_start(), pid=1)])
    sights = [follower.look() for _ in range(3)]

    assert {("first", 1)} == {(sight.run and sight.run.run_id, sight.serial) for sight in sights}


def test_of_two_starts_that_go_on_the_one_that_began_last_is_told(write_run: WriteRun, tmp_path: Path) -> None:
    write_run(tmp_path / "a", [{**event, "run_id": "a"} for event in mine(open_start())])
    later = {"run_id": "b", "ts": "2026-12-24T18:45:00.000000000Z"}
    write_run(tmp_path / "b", [{**event, **later} for event in mine(open_start())])

    sight = look(tmp_path)

    assert sight.run is not None
    assert sight.run.run_id == "b"


def test_a_log_that_may_not_be_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "server.log"
    log.write_text("text")

    def refuse(_: Path) -> bool:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(follow_files, "is_packed", refuse)

    with pytest.raises(BadUse, match=r"server\.log cannot be read: Permission denied; give one"):
        look(log)


def test_a_rank_s_file_that_holds_nothing_or_was_not_given_is_told(write_run: WriteRun, tmp_path: Path) -> None:
    run = write_run(tmp_path / "night-1", mine(open_start()))
    (given,) = run.iterdir()
    named = run / "node-a.4711.99.jsonl"
    given.rename(named)
    whole = look(run)
    (run / "node-a.4712.99.jsonl").write_bytes(b"")

    assert "" == whole.unseen
    assert "1 file of this run was not read" in look(run).unseen
    assert "1 file of this run was not read" in look(named).unseen


def test_a_start_on_another_host_is_followed_while_it_is_written(write_run: WriteRun, tmp_path: Path) -> None:
    run = write_run(tmp_path / "night-1", elsewhere(open_start()))
    fresh = look(tmp_path)
    long_ago(run, SILENCE_S + 60)
    stale = look(tmp_path)

    assert fresh.run is not None
    assert fresh.run.outcome == "unknown"
    assert stale.run is None
    assert "night-1 is over" in stale.waiting


def test_a_new_launch_under_the_same_run_id_is_a_new_run(write_run: WriteRun, tmp_path: Path) -> None:
    run = write_run(tmp_path / "night-1", mine(failed_start(), pid=1 << 22))
    follower = Follower(str(tmp_path), named=True)
    before = follower.look()
    later = [{**event, "mono_ns": 2 * 10**12 + seq} for seq, event in enumerate(mine(open_start()))]
    (run / "again.jsonl").write_bytes(b"".join(as_written(event) + b"\n" for event in later))
    after = wait(follower, lambda sight: sight.run is not None)

    assert before.run is None
    assert after.run is not None
    assert (1, "starting") == (after.run.launch, after.run.outcome)


def test_processes_that_end_before_any_rank_began_are_no_run_to_report(write_run: WriteRun, tmp_path: Path) -> None:
    follower = Follower(str(tmp_path), named=True)
    assert follower.look().run is None
    write_run(tmp_path / "helped", mine(failed_start()[:1], pid=1 << 22, rank=None))

    sight = wait(follower, lambda sight: "over" in sight.waiting)

    assert sight.run is None
    assert f"night-1 is over: it ended before any rank began (sglang-probe explain {tmp_path}/helped)" in sight.waiting


def wait(follower: Follower, condition: Callable[[Sight], bool]) -> Sight:
    deadline = time.monotonic() + 20
    while not condition(sight := follower.look()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return sight


def test_nothing_is_read_while_nothing_changes(
    write_run: WriteRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = write_run(tmp_path / "night-1", mine(open_start()))
    follower = Follower(str(run), named=True)
    first = wait(follower, lambda sight: sight.run is not None)
    monkeypatch.setattr(follow, "read", lambda *_, **__: pytest.fail("read again"))

    again = [follower.look() for _ in range(5)]

    assert {id(first.run)} == {id(sight.run) for sight in again}
    assert again[-1].now > first.now


def test_the_time_stands_still_while_what_was_written_is_not_read(
    write_run: WriteRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = write_run(tmp_path / "night-1", mine(open_start()))
    follower = Follower(str(run), named=True)
    known = wait(follower, lambda sight: sight.run is not None)
    monkeypatch.setattr(follower, "_pause", follow.Pause(float("inf"), float("inf")))
    (run / "more.jsonl").write_bytes(as_written(mine(open_start())[0]) + b"\n")

    stale = [follower.look() for _ in range(3)]

    assert {known.now} == {sight.now for sight in stale}
    assert {id(known.run)} == {id(sight.run) for sight in stale}


def test_a_process_that_is_gone_is_noticed_though_nothing_was_written(write_run: WriteRun, tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL) as rank:
        follower = Follower(str(write_run(tmp_path / "night-1", of(rank.pid, open_start()))), named=True)
        before = wait(follower, lambda sight: sight.run is not None)
        rank.kill()
        rank.wait()
        after = wait(follower, lambda sight: sight.run is not before.run)

    assert before.run is not None
    assert after.run is not None
    assert ("starting", "died") == (before.run.outcome, after.run.outcome)


@pytest.mark.parametrize("zone_s", [0, 5.5 * 3600, -8 * 3600])
def test_the_clock_of_a_log_is_told_from_when_it_was_written(tmp_path: Path, zone_s: float) -> None:
    moment = time.gmtime(time.time() + zone_s - 5)
    log = tmp_path / "server.log"
    log.write_text(f"[{time.strftime('%Y-%m-%d %H:%M:%S', moment)} TP0] Load weight begin. avail mem=90.00 GB\n")

    sight = look(log)

    assert sight.run is not None
    assert time.time() + zone_s == pytest.approx(sight.now.timestamp(), abs=2)
