"""`sglang-probe timeline`: what is read, what is printed, what is refused."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sglang_probe.events import names
from sglang_probe.report.bars import legend

Probe = Callable[..., "subprocess.CompletedProcess[str]"]
Start = Callable[..., "subprocess.Popen[str]"]
WriteRun = Callable[..., Path]
Events = list[dict[str, Any]]

FORMULA = "= 21.697 - 93.999 x (1 - 0.550) - 0.000 = -20.603 GiB -> no KV cache"
ANSI = re.compile("\x1b\\[[0-9;]*m")
BAR = re.compile(rf"^  \[[WKGFo.]+\]$|^  {re.escape(legend(foreign=False))}$")


def test_a_failed_start_is_settled_on_one_page_and_is_no_error_of_the_command(
    probe: Probe, write_run: WriteRun, tmp_path: Path
) -> None:
    shown = probe("timeline", write_run(tmp_path / "runs" / "night-1"))

    assert (shown.returncode, shown.stderr) == (0, "")
    head, block = shown.stdout.split("\n\n", 1)
    assert "outcome   FAILED in kv.profile" in head
    assert "error     RuntimeError: Not enough memory." in head
    assert "SGLang 0.5.9" in head
    assert re.search(r"files +\S+runs/night-1$", head, re.MULTILINE)
    assert FORMULA in block
    assert "minimum viable fraction = 1 - 21.697 / 93.999 = 0.7692" in block
    assert re.search(r"^scheduler\.init +error +1\.000 +94\.466 +21\.697 +72\.769$", block, re.MULTILINE)
    assert re.search(r"^  kv\.profile +ok ", block, re.MULTILINE)


@pytest.mark.parametrize(
    ("path", "env"),
    [
        (["runs/night-1"], {}),
        (["runs/night-1/node-a.4711.88.jsonl"], {}),
        (["runs"], {}),
        ([], {"SGLANG_PROBE_DIR": "runs"}),
        (["-"], {}),
    ],
)
def test_a_run_is_found_by_each_name_it_can_have(
    probe: Probe, write_run: WriteRun, tmp_path: Path, path: list[str], env: dict[str, str]
) -> None:
    run = write_run(tmp_path / "runs" / "night-1")
    events = (run / "node-a.4711.88.jsonl").read_text()

    shown = probe("timeline", *path, env=env, stdin=events)

    assert shown.returncode == 0
    assert FORMULA in shown.stdout


def test_without_a_path_the_default_directory_is_read(probe: Probe, write_run: WriteRun, tmp_path: Path) -> None:
    write_run(tmp_path / "sglang-probe-runs" / "night-1")

    assert FORMULA in probe("timeline").stdout


def keys_of(line: str) -> set[str]:
    return set(line.split())


# The shape of DESIGN.md, level by level.
RUN = keys_of("run_id launch source outcome failed_phase provenance processes")
PROCESS = keys_of("host pid role rank label device steps workers")
STEP = keys_of(
    "id parent phase worker draft_index ts duration_s free_bytes delta_bytes self_delta_bytes state ledger"
    " ledger_total_source"
)
WORKER = keys_of("worker draft_index weights_bytes budget kv")
BUDGET = keys_of(
    "pre_load_bytes available_bytes pre_load_local_bytes available_local_bytes mem_fraction_static"
    " mem_fraction_static_given static_budget_bytes slack_bytes deductions rest_bytes minimum_viable_fraction"
    " minimum_viable_fraction_printed verified verified_reason"
)


def test_json_has_the_documented_shape_and_the_same_figures(
    probe: Probe, write_run: WriteRun, failing: Events, tmp_path: Path
) -> None:
    shown = probe("timeline", write_run(tmp_path / "night-1", failing), "--format", "json")

    told = json.loads(shown.stdout)
    (run,) = told["runs"]
    (process,) = run["processes"]
    (worker,) = process["workers"]
    terms = failing[3]["attributes"]
    assert told["schema"] == "timeline/1.0"
    for expected, value in ((RUN, run), (PROCESS, process), (WORKER, worker), (BUDGET, worker["budget"])):
        assert expected - value.keys() == set()
    assert [STEP - step.keys() for step in process["steps"]] == [set()] * len(process["steps"])
    assert (run["outcome"], run["failed_phase"]) == ("failed", "kv.profile")
    assert worker["budget"]["rest_bytes"] == terms["rest_bytes"]
    assert worker["budget"]["minimum_viable_fraction"] == terms["minimum_viable_fraction"]


def test_a_torn_last_line_is_reported_and_costs_itself_alone(
    probe: Probe, write_run: WriteRun, failing: Events, tmp_path: Path
) -> None:
    torn = json.dumps(failing[-1], separators=(",", ":")).encode()[:100]
    shown = probe("timeline", write_run(tmp_path / "night-1", failing[:-1], tail=torn))

    assert shown.returncode == 0
    assert FORMULA in shown.stdout
    assert "LOST: 1 x the last line of a file is cut off" in shown.stdout
    assert f"node-a.4711.88.jsonl line {len(failing)}" in shown.stdout


def test_a_run_without_any_memory_role_is_said_loudly(
    probe: Probe, write_run: WriteRun, failing: Events, tmp_path: Path
) -> None:
    shown = probe("timeline", write_run(tmp_path / "night-1", failing[:1]))

    assert shown.returncode == 0
    assert "PROBE: no memory role was hooked" in shown.stdout


def test_no_text_of_an_event_acts_on_the_terminal_in_either_format(
    probe: Probe, write_run: WriteRun, failing: Events, tmp_path: Path
) -> None:
    evil = "\x1b[2J \x9b31m \u202egnp \r\n== TP9: forged\x07 [red]x[/red]"
    failing[-1]["exception"]["message"] = evil
    run = write_run(tmp_path / "night-1", failing)

    text, document = (probe("timeline", run, "--format", form).stdout for form in ("text", "json"))

    for shown in (text, document):
        assert [line for line in shown.split("\n") if not line.isprintable()] == []
    assert len(re.findall("^== ", text, re.MULTILINE)) == 1
    assert "[red]x[/red]" in text
    assert json.loads(document)["runs"][0]["failure"]["message"] == evil


@pytest.fixture
def bad_input(tmp_path: Path) -> Path:
    """A directory of things that are no runs."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty.jsonl").touch()
    (tmp_path / "binary").write_bytes(bytes(range(256)) * 16)
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "trace.json").write_text(json.dumps({"traceEvents": [{"ph": "X", "pid": 1}]}))
    (tmp_path / "newer.jsonl").write_text(json.dumps({"schema": "99.0", "event": names.PROCESS_START}) + "\n")
    return tmp_path


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("nowhere", "nowhere"),
        ("evil\n\x1b[2Jname", "evil\\n\\x1b[2Jname"),
        ("empty", "empty directory"),
        ("empty.jsonl", "is empty"),
        ("binary", "binary file"),
        ("foreign", "traceEvents"),
        ("foreign/trace.json", "traceEvents"),
        ("newer.jsonl", "99.0"),
        ("-", "standard input"),
        (None, "sglang-probe-runs"),
    ],
)
def test_bad_input_is_one_line_on_stderr_and_exit_2(probe: Probe, bad_input: Path, path: str | None, said: str) -> None:
    refused = probe("timeline", *([] if path is None else [path]), cwd=bad_input)

    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr.count("\n") == 1
    assert refused.stderr.startswith("sglang-probe timeline: ")
    assert said in refused.stderr


def test_a_reader_that_leaves_is_no_error(start: Start, write_run: WriteRun, tmp_path: Path) -> None:
    process = start("timeline", write_run(tmp_path / "night-1"))
    assert process.stdout
    assert process.stderr
    process.stdout.close()

    assert (process.stderr.read(), process.wait(timeout=60)) == ("", 0)


def test_a_pipe_gets_no_colour_whatever_the_environment_says(probe: Probe, write_run: WriteRun, tmp_path: Path) -> None:
    env = {"FORCE_COLOR": "1", "CLICOLOR_FORCE": "1", "TERM": "xterm-256color", "COLUMNS": "200"}
    run = write_run(tmp_path / "night-1")

    shown = probe("timeline", run, env=env).stdout

    assert "\x1b" not in shown
    assert shown == probe("timeline", run).stdout


def on_terminal(start: Start, *words: str | Path, **environment: str) -> str:
    """Run a command whose stdout is a terminal and return what it wrote there."""
    master, slave = pty.openpty()
    process = start(*words, stdout=slave, env={"TERM": "xterm", "NO_COLOR": "", "COLUMNS": "80", **environment})
    os.close(slave)
    written = b""
    try:
        while block := os.read(master, 65536):
            written += block
    except OSError:  # Linux says so when the last writer has closed
        pass
    os.close(master)
    assert process.wait(timeout=60) == 0
    return written.decode().replace("\r\n", "\n")


def test_a_terminal_gets_colour_bars_and_the_same_text(
    probe: Probe, start: Start, write_run: WriteRun, tmp_path: Path
) -> None:
    run = write_run(tmp_path / "night-1")
    piped = probe("timeline", run).stdout

    coloured = on_terminal(start, "timeline", run)

    bare = ANSI.sub("", coloured)
    assert "\x1b[" in coloured
    assert [line for line in bare.splitlines() if not BAR.search(line)] == piped.splitlines()
    assert len(bare.splitlines()) > len(piped.splitlines())
    assert on_terminal(start, "timeline", run, NO_COLOR="1") == bare
    assert on_terminal(start, "timeline", run, TERM="dumb") == piped


def test_a_file_name_that_is_not_utf8_is_spelt_out_in_json_and_text(
    probe: Probe, write_run: WriteRun, tmp_path: Path
) -> None:
    run = write_run(tmp_path / "night-1")
    Path(os.fsdecode(os.fsencode(run) + b"/\xff.txt")).write_text("note\n")

    shown, text = probe("timeline", run, "--format", "json"), probe("timeline", run)

    assert (shown.returncode, shown.stderr, text.returncode, text.stderr) == (0, "", 0, "")
    (loss,) = json.loads(shown.stdout)["read"]["losses"]
    assert loss["examples"][0]["file"].endswith("/\\udcff.txt")
    assert "(\\udcff.txt)" in text.stdout


def test_a_pipe_in_a_run_directory_is_not_waited_for(probe: Probe, write_run: WriteRun, tmp_path: Path) -> None:
    run = write_run(tmp_path / "night-1")
    os.mkfifo(run / "pipe.jsonl")

    shown = probe("timeline", run)

    assert FORMULA in shown.stdout
    assert "pipe.jsonl" in shown.stdout
