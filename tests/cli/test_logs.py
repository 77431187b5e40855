"""Plain logs on the command line: alone, beside events, compressed, from standard input."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import os
import pty
import shutil
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from backports import zstd

from sglang_probe.cli.progress import PATIENCE_S, STEP_BYTES
from tests.cli.conftest import command, environment
from tests.collect.logs.telling import BATCH, Teller

Probe = Callable[..., "subprocess.CompletedProcess[str]"]
DATA = Path(__file__).parent.parent / "data" / "h200-x2-sglang-0.5.14"
LOG = DATA / "car.log"
PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "zst": zstd.compress,
    "xz": lzma.compress,
    "bz2": bz2.compress,
}


def _runs(probe: Probe, *paths: str | Path, **more: Any) -> list[dict[str, Any]]:
    shown = probe("timeline", *paths, "--format", "json", **more)
    assert (0, "") == (shown.returncode, shown.stderr)
    document = json.loads(shown.stdout)
    return list(document["runs"])


def test_a_log_alone_is_a_run(probe: Probe) -> None:
    (run,) = _runs(probe, LOG)

    assert ("car.log", "log", "ready") == (run["run_id"], run["source"], run["outcome"])


def test_a_log_is_known_by_its_content_and_not_by_its_name(probe: Probe, tmp_path: Path) -> None:
    for name in ("events.jsonl", "noname", "core.bin"):
        shutil.copy(LOG, tmp_path / name)

        assert [(name, "ready")] == [(run["run_id"], run["outcome"]) for run in _runs(probe, tmp_path / name)]


@pytest.mark.parametrize("ending", PACKERS)
def test_a_compressed_log_is_the_same_run(probe: Probe, tmp_path: Path, ending: str) -> None:
    packed = tmp_path / "car.log"
    packed.write_bytes(PACKERS[ending](LOG.read_bytes()))

    (plain,), (run,) = _runs(probe, LOG), _runs(probe, packed)
    assert plain == json.loads(json.dumps(run).replace(str(packed), str(LOG)))


@pytest.mark.parametrize("ending", PACKERS)
def test_compressed_events_are_read_too(probe: Probe, tmp_path: Path, ending: str) -> None:
    for file in (DATA / "car").iterdir():
        (tmp_path / f"{file.name}.{ending}").write_bytes(PACKERS[ending](file.read_bytes()))

    (run,) = _runs(probe, tmp_path)

    assert ("car", "ready", "events") == (run["run_id"], run["outcome"], run["source"])


def test_of_a_cut_off_archive_what_is_whole_is_read_and_the_rest_is_missed(probe: Probe, tmp_path: Path) -> None:
    cut = tmp_path / "car.log.gz"
    teller = Teller()
    whole = gzip.compress("".join(teller.start()).encode())
    batches = "".join(teller.line(BATCH, "TP0") for _ in range(100_000))
    cut.write_bytes(whole + gzip.compress(batches.encode())[:50_000])

    shown = probe("timeline", cut)

    assert 0 == shown.returncode
    assert "outcome   READY" in shown.stdout
    said = " ".join(shown.stdout.split())
    assert "1 x a compressed file could not be read to its end (car.log.gz: it is cut off)" in said


def test_standard_input_may_be_compressed(tmp_path: Path) -> None:
    shown = subprocess.run(
        command("timeline", "-", "--format", "json"), input=gzip.compress(LOG.read_bytes()), capture_output=True,
        env=environment(), cwd=tmp_path, timeout=60,
    )

    assert ["standard input"] == [run["run_id"] for run in json.loads(shown.stdout)["runs"]]


def test_kinds_may_be_mixed(probe: Probe) -> None:
    runs = _runs(probe, DATA / "nocar", LOG)

    assert {("nocar", "events"), ("car.log", "log")} == {(run["run_id"], run["source"]) for run in runs}


def test_a_log_that_lies_in_a_run_directory_is_read_with_its_events(probe: Probe, tmp_path: Path) -> None:
    run = tmp_path / "runs" / "night-1"
    shutil.copytree(DATA / "car", run)
    shutil.copy(LOG, run / "server.out")

    for path in (run, tmp_path / "runs"):
        document = json.loads(probe("timeline", path, "--format", "json").stdout)

        assert 1 == document["read"]["log_files"]
        assert {run["source"] for run in document["runs"]} in ({"events", "log"}, {"both"})


def test_a_log_beside_run_directories_is_named_and_not_read(probe: Probe) -> None:
    shown = probe("timeline", DATA)

    assert "a log of SGLang's beside run directories was not read" in " ".join(shown.stdout.split())


@pytest.mark.parametrize("log_first", [True, False])
def test_events_and_log_lines_in_one_file_are_both_read(probe: Probe, tmp_path: Path, log_first: bool) -> None:
    events = b"".join(file.read_bytes() for file in sorted((DATA / "car").iterdir()))
    log = LOG.read_bytes()
    mixed = tmp_path / "all"
    mixed.write_bytes(log + events if log_first else events + log)

    document = json.loads(probe("timeline", mixed, "--format", "json").stdout)

    alone = json.loads(probe("timeline", DATA / "car", LOG, "--format", "json").stdout)
    for count in ("events", "facts"):
        assert alone["read"][count] == document["read"][count]
    assert "foreign_line" not in {loss["kind"] for loss in document["read"]["losses"]}


def test_events_between_the_lines_of_a_log_leave_the_lines_their_numbers(probe: Probe, tmp_path: Path) -> None:
    events = b"".join(file.read_bytes() for file in sorted((DATA / "car").iterdir())).splitlines(keepends=True)
    teller = Teller()
    first, second = teller.start(), teller.start()
    mixed = tmp_path / "all.log"
    mixed.write_bytes("".join(first).encode() + b"".join(events) + "".join(second).encode())

    shown = " ".join(probe("timeline", mixed).stdout.split())

    assert f"line {len(first) + len(events) + 1:,} prints server_args again" in shown


def test_a_log_that_says_nothing_of_memory_says_so(probe: Probe, tmp_path: Path) -> None:
    silent = tmp_path / "silent.log"
    silent.write_text(Teller().line("Tree cache initialized: source=default impl=RadixCache", "TP0"))

    refused = probe("timeline", silent)

    assert 2 == refused.returncode
    assert "silent.log is a log, but no line of it says anything of SGLang's memory or start" in refused.stderr
    assert 1 == refused.stderr.count("\n")


def test_a_text_of_something_else_says_so(probe: Probe, tmp_path: Path) -> None:
    other = tmp_path / "notes.txt"
    other.write_text("a note\n")

    refused = probe("explain", other)

    assert "notes.txt is text, but no probe events, and no line of it is of SGLang's log; give a run" in refused.stderr


def test_two_servers_that_cannot_be_told_apart_are_refused_in_one_line(probe: Probe, tmp_path: Path) -> None:
    one, other = Teller(), Teller()
    lines = [*one.arguments(port=30000), *other.arguments(port=30001)]
    for pair in zip(one.group(), other.group(), strict=True):
        lines += pair
    mixed = tmp_path / "both.log"
    mixed.write_text("".join(lines))

    refused = probe("timeline", mixed)

    assert 2 == refused.returncode
    assert "both.log was written by two servers at once" in refused.stderr
    assert 1 == refused.stderr.count("\n")


def test_a_baseline_of_which_only_the_log_is_left_is_compared_with_a_run(probe: Probe) -> None:
    shown = probe("diff", DATA / "nocar.log", DATA / "car")

    assert (0, "") == (shown.returncode, shown.stderr)
    assert "nocar.log -> car" in shown.stdout
    assert "disable_custom_all_reduce True -> False" in shown.stdout


def test_a_side_of_several_starts_is_refused_and_one_of_them_can_be_named(probe: Probe, tmp_path: Path) -> None:
    twice = tmp_path / "twice.log"
    twice.write_bytes(LOG.read_bytes() * 2)

    refused = probe("diff", twice, DATA / "car")

    assert "holds 2 runs (twice.log, twice.log#2), and a side is one; name it:" in refused.stderr
    assert 0 == probe("diff", f"{twice}#2", DATA / "car").returncode


@pytest.mark.parametrize("words", [["explain"], ["plan", "--mem-fraction-static", "0.8"]])
def test_explain_and_plan_take_a_log(probe: Probe, words: list[str]) -> None:
    shown = probe(*words, LOG)

    assert "" == shown.stderr
    assert "car.log" in shown.stdout


def test_what_a_log_does_not_hold_can_be_told(probe: Probe, tmp_path: Path) -> None:
    teller = Teller()
    log = tmp_path / "server.log"
    log.write_text("".join([*teller.group(), *teller.totals()]))

    (told,) = _runs(probe, log, "--assume", "mem_fraction_static=0.81", "--assume", "tp=2")

    assert {"mem_fraction_static": 0.81, "tp_size": 2} == told["provenance"]["given"]


def test_what_is_told_has_no_place_where_events_say_it(probe: Probe) -> None:
    refused = probe("timeline", DATA / "car", "--assume", "tp_size=2")

    assert (2, "") == (refused.returncode, refused.stdout)
    assert "--assume tp_size is for plain logs" in refused.stderr


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["mem_fraction_static"], "'mem_fraction_static' is not NAME=VALUE, such as mem_fraction_static=0.83"),
        (["=3"], "'=3' is not NAME=VALUE"),
        (["mem_fraction_static=83"], "'83' is not a fraction between 0 and 1"),
        (["tp_size=0"], "tp_size=0 is not a whole number from 1"),
        (["tp_size=two"], "tp_size=two is not a whole number from 1"),
        (["cuda_graph_bs=[1, 2]"], "cuda_graph_bs=[1, 2] is not one number or text"),
        (["tp_size=2", "--tp-size=4"], "--assume names tp_size twice, as 2 and as 4; give one"),
    ],
)
def test_what_is_told_wrongly_is_refused_with_what_would_be_right(probe: Probe, words: list[str], says: str) -> None:
    refused = probe("timeline", LOG, *(f"--assume={word}" for word in words))

    assert 2 == refused.returncode
    assert says in refused.stderr
    assert 1 == refused.stderr.count("\n")


def _on_a_terminal(*args: str | Path, slow: Path) -> tuple[str, str]:
    """Run with stderr on a terminal and a pipe as input that takes its time; return stdout and stderr."""
    main, other = pty.openpty()
    with subprocess.Popen(
        command(*args), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=other, env=environment(TERM="xterm")
    ) as process:
        os.close(other)
        seen: list[bytes] = []
        reader = threading.Thread(target=_drain, args=(main, seen))
        reader.start()
        assert process.stdin is not None and process.stdout is not None
        data = slow.read_bytes()
        process.stdin.write(data[: len(data) // 2])  # comes back when the command has read it, but for a pipe's content
        process.stdin.flush()
        time.sleep(2 * PATIENCE_S if len(data) > STEP_BYTES else 0)
        process.stdin.write(data[len(data) // 2 :])
        process.stdin.close()
        out = process.stdout.read().decode()
        reader.join()
    os.close(main)
    return out, b"".join(seen).decode()


def _drain(descriptor: int, seen: list[bytes]) -> None:
    while True:
        try:
            block = os.read(descriptor, 65536)
        except OSError:  # the other end was closed
            return
        if not block:
            return
        seen.append(block)


def test_a_bar_is_shown_on_stderr_while_much_is_read_and_never_on_stdout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = tmp_path / "long.log"
    long.write_text("".join(Teller().start()) + "INFO:     127.0.0.1 - GET /health 200 OK\n" * 500_000)

    out, seen = _on_a_terminal("timeline", "-", "--format", "json", slow=long)

    assert "reading" in seen
    assert json.loads(out)["runs"]


def test_no_bar_is_shown_for_what_is_read_at_once(tmp_path: Path) -> None:
    out, seen = _on_a_terminal("timeline", "-", "--format", "json", slow=LOG)

    assert "" == seen
    assert json.loads(out)["runs"]
