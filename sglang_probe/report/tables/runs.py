"""The tables about whole runs: `about` (this report), `runs`, `remarks` and `losses`."""

from __future__ import annotations

from itertools import chain, repeat
from typing import Final, NamedTuple

import sglang_probe
from sglang_probe.collect.report import ReadReport
from sglang_probe.report.tables.kinds import BYTES, COUNT, FLAG, JSON, LOCAL_TIME, SECONDS, TEXT, TIME, WORD, WORDS
from sglang_probe.report.tables.spec import RUN, SCHEMA, Column, Facts, Frame, Part, Table, each, few, of, owners
from sglang_probe.timeline.processes import ranks_of


class _About(NamedTuple):
    schema: str
    probe_version: str
    read: ReadReport


def _about(facts: Facts) -> Frame:
    return Frame([_About(SCHEMA, sglang_probe.__version__, facts.whole.material.timeline.read)])


ABOUT: Final = Table(
    "about",
    "this report: what made it and how much was read",
    "the report",
    (
        Column("schema", TEXT, "version of these tables", required=True),
        Column("probe_version", TEXT, "version of SGLang Probe that wrote them", required=True),
        Column("files", COUNT, "files that held events", "read.files", required=True),
        Column("lines", COUNT, "their lines", "read.lines", required=True),
        Column("read_bytes", BYTES, "their size", "read.bytes", required=True),
        Column("events", COUNT, "events in them", "read.events", required=True),
        Column("log_files", COUNT, "plain logs of SGLang", "read.log_files", required=True),
        Column("log_lines", COUNT, "their lines", "read.log_lines", required=True),
        Column("log_bytes", BYTES, "their size, unpacked", "read.log_bytes", required=True),
        Column("facts", COUNT, "what the logs' lines say of a start or of memory", "read.facts", required=True),
        Column("other_runs", COUNT, "runs that lay beside and were not read", "read.other_runs", required=True),
    ),
    _about,
)


class _Read(NamedTuple):
    files: list[str] | None


def _runs(facts: Facts) -> Frame:
    where = chain(facts.whole.material.where, repeat(()))
    parts = {
        "owner": owners(facts.whole.runs, [1] * len(facts.whole.runs)),
        "failure": few(run.failure for run in facts.whole.runs),
        "provenance": Part([run.provenance for run in facts.whole.runs]),
        "health": Part([run.health for run in facts.whole.runs]),
        "read": Part([_Read(list(files) or None) for _, files in zip(facts.whole.runs, where, strict=False)]),
    }
    return Frame(facts.whole.runs, parts)


RUNS: Final = Table(
    "runs",
    "what was started, how it ended, and what it was made of",
    "a launch of a server, over all its hosts",
    (
        *RUN,
        Column("source", WORD, "events, log or both", required=True),
        Column("outcome", WORD, "ready, failed, died, starting or unknown", required=True),
        Column("outcome_reason", TEXT, "why, where it is not plain"),
        Column("failed_phase", WORD, "innermost phase of the first error"),
        Column("failed_label", WORD, "the rank that died, or whose error was the first"),
        *of(
            "failure",
            Column("failure_type", TEXT, "type of the first exception", "type"),
            Column("failure_message", TEXT, "what it says", "message"),
            Column("failure_raised_in", TEXT, "module:function:line", "raised_in"),
            Column("failure_stacktrace", TEXT, "its stack, innermost frames", "stacktrace"),
        ),
        Column("lost_peer", FLAG, "that error only reports a process that is gone", required=True),
        Column("started_ts", TIME, "first event; NULL in a log that names no zone", "started"),
        Column("ended_ts", TIME, "last event", "ended"),
        Column("local_started", LOCAL_TIME, "first stamp of a log, by the server's clock"),
        Column("local_ended", LOCAL_TIME, "last stamp of a log"),
        Column("ready_s", SECONDS, "from the first event to ready; NULL: not ready, or of several hosts"),
        Column("ranks", COUNT, "ranks that were seen", each(lambda run: len(ranks_of(run))), required=True),
        Column("missing", JSON, "ranks that others speak of and that wrote nothing", required=True),
        Column("unread_files", COUNT, "files of the run that were not given", required=True),
        *of(
            "provenance",
            Column("sglang_version", WORD, "NULL where nothing says"),
            Column("sglang_commit", TEXT, "of a checkout"),
            Column("sglang_dirty", FLAG, "the checkout had changes"),
            Column("sglang_path", TEXT, "where it was imported from"),
            Column("command", JSON, "argv of the launcher, secrets removed"),
            Column("given", JSON, "flags of the command line"),
            Column("effective", JSON, "SGLang's resolved arguments"),
            Column("environment", JSON, "variables that matter", required=True),
            Column("allocator_config", TEXT, "PYTORCH_CUDA_ALLOC_CONF"),
            Column("versions", JSON, "torch, CUDA, driver, NCCL, Python", required=True),
            Column("distributions", JSON, "installed packages", required=True),
            Column("fingerprints", JSON, "hooked function -> hash of its source", required=True),
            Column("differs", JSON, "what processes of the run do not agree on", required=True),
        ),
        Column("joined_run_ids", WORDS, "ids that were found to be this launch", required=True),
        Column("skew", JSON, "hosts' clocks against the first one's", required=True),
        Column("later", JSON, "what went wrong after it was ready", required=True),
        *of(
            "health",
            Column("health_ok", FLAG, "the probe itself did well", "ok", required=True),
            Column("health_says", WORDS, "what it has to report of itself", "says", required=True),
            Column("lost_events", COUNT, "events that are known to be missing"),
        ),
        Column("log_check", JSON, "a log that was merged in, against the events"),
        Column("notes", WORDS, "how a log was cut, and what it does not hold", required=True),
        *of("read", Column("files", WORDS, "where the run was read")),
    ),
    _runs,
)


def _remarks(facts: Facts) -> Frame:
    rows = list(chain.from_iterable(run.remarks for run in facts.whole.runs))
    return Frame(rows, {"owner": owners(facts.whole.runs, (len(run.remarks) for run in facts.whole.runs))})


REMARKS: Final = Table(
    "remarks",
    "what a log says beside its steps: caught errors, changed settings, what looks fatal and is not",
    "one saying of a log",
    (
        *RUN,
        Column("label", WORD, "the rank that printed it; NULL where the line names none"),
        Column("kind", WORD, "what sort of line", required=True),
        Column("what", TEXT, "in our words", required=True),
        Column("line", TEXT, "the line", "text", required=True),
        Column("place", TEXT, "file:line, of the first where there are several", required=True),
        Column("said", COUNT, "how many lines said so", "count", required=True),
        Column("figures", JSON, "its figures, of the last line", "values", required=True),
    ),
    _remarks,
)


def _losses(facts: Facts) -> Frame:
    return Frame(facts.whole.material.timeline.read.losses)


LOSSES: Final = Table(
    "losses",
    "what reading found that was not a whole event",
    "one kind of loss",
    (
        Column("kind", WORD, "a short name", required=True),
        Column("found", COUNT, "how often", "count"),
        Column("lost", FLAG, "data is gone; false: it was only noted", required=True),
        Column("what", TEXT, "in one sentence", "says", required=True),
        Column("examples", JSON, "the first places", required=True),
    ),
    _losses,
)
