"""The tables about whole runs: `about` (this report), `runs`, `remarks` and `losses`."""

from __future__ import annotations

from itertools import zip_longest
from typing import Final, NamedTuple

import sglang_probe
from sglang_probe.collect.report import ReadReport
from sglang_probe.report.tables.kinds import BYTES, COUNT, FLAG, JSON, LOCAL_TIME, SECONDS, TEXT, TIME, WORD, WORDS
from sglang_probe.report.tables.spec import RUN, SCHEMA, Column, Facts, Frame, Table, each
from sglang_probe.timeline.model import Failure, Remark, Run
from sglang_probe.timeline.processes import ranks_of


class _About(NamedTuple):
    schema: str
    probe_version: str
    read: ReadReport


def _about(facts: Facts) -> Frame:
    return Frame([_About(SCHEMA, sglang_probe.__version__, facts.material.timeline.read)], facts)


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


class _RunRow(NamedTuple):
    run: Run
    failure: Failure
    files: list[str] | None


def _runs(facts: Facts) -> Frame:
    where = list(facts.material.where)[: len(facts.runs)]
    rows = zip_longest(facts.runs, where)
    return Frame([_RunRow(run, run.failure or Failure(), list(files) if files else None) for run, files in rows], facts)


RUNS: Final = Table(
    "runs",
    "what was started, how it ended, and what it was made of",
    "a launch of a server, over all its hosts",
    (
        *RUN,
        Column("source", WORD, "events, log or both", "run.source", required=True),
        Column("outcome", WORD, "ready, failed, died, starting or unknown", "run.outcome", required=True),
        Column("outcome_reason", TEXT, "why, where it is not plain", "run.outcome_reason"),
        Column("failed_phase", WORD, "innermost phase of the first error", "run.failed_phase"),
        Column("failed_label", WORD, "the rank that died, or whose error was the first", "run.failed_label"),
        Column("failure_type", TEXT, "type of the first exception", "failure.type"),
        Column("failure_message", TEXT, "what it says", "failure.message"),
        Column("failure_raised_in", TEXT, "module:function:line", "failure.raised_in"),
        Column("failure_stacktrace", TEXT, "its stack, innermost frames", "failure.stacktrace"),
        Column("lost_peer", FLAG, "that error only reports a process that is gone", "run.lost_peer", required=True),
        Column("started_ts", TIME, "first event; NULL in a log that names no zone", "run.started"),
        Column("ended_ts", TIME, "last event", "run.ended"),
        Column("local_started", LOCAL_TIME, "first stamp of a log, by the server's clock", "run.local_started"),
        Column("local_ended", LOCAL_TIME, "last stamp of a log", "run.local_ended"),
        Column(
            "ready_s", SECONDS, "from the first event to ready; NULL: not ready, or on several hosts", "run.ready_s"
        ),
        Column("ranks", COUNT, "ranks that were seen", each(lambda row: len(ranks_of(row.run))), required=True),
        Column("missing", JSON, "ranks that others speak of and that wrote nothing", "run.missing", required=True),
        Column("unread_files", COUNT, "files of the run that were not given", "run.unread_files", required=True),
        Column("sglang_version", WORD, "NULL where nothing says", "run.provenance.sglang_version"),
        Column("sglang_commit", TEXT, "of a checkout", "run.provenance.sglang_commit"),
        Column("sglang_dirty", FLAG, "the checkout had changes", "run.provenance.sglang_dirty"),
        Column("sglang_path", TEXT, "where it was imported from", "run.provenance.sglang_path"),
        Column("command", JSON, "argv of the launcher, secrets removed", "run.provenance.command"),
        Column("given", JSON, "flags of the command line", "run.provenance.given"),
        Column("effective", JSON, "SGLang's resolved arguments", "run.provenance.effective"),
        Column("environment", JSON, "variables that matter", "run.provenance.environment", required=True),
        Column("allocator_config", TEXT, "PYTORCH_CUDA_ALLOC_CONF", "run.provenance.allocator_config"),
        Column("versions", JSON, "torch, CUDA, driver, NCCL, Python", "run.provenance.versions", required=True),
        Column("distributions", JSON, "installed packages", "run.provenance.distributions", required=True),
        Column(
            "fingerprints", JSON, "hooked function -> hash of its source", "run.provenance.fingerprints", required=True
        ),
        Column("differs", JSON, "what processes of the run do not agree on", "run.provenance.differs", required=True),
        Column("joined_run_ids", WORDS, "ids that were found to be this launch", "run.joined_run_ids", required=True),
        Column("skew", JSON, "hosts' clocks against the first one's", "run.skew", required=True),
        Column("later", JSON, "what went wrong after it was ready", "run.later", required=True),
        Column("health_ok", FLAG, "the probe itself did well", "run.health.ok", required=True),
        Column("health_says", WORDS, "what it has to report of itself", "run.health.says", required=True),
        Column("lost_events", COUNT, "events that are known to be missing", "run.health.lost_events", required=True),
        Column("log_check", JSON, "a log that was merged in, against the events", "run.log_check"),
        Column("notes", WORDS, "how a log was cut, and what it does not hold", "run.notes", required=True),
        Column("files", WORDS, "where the run was read"),
    ),
    _runs,
)


class _RemarkRow(NamedTuple):
    run: Run
    remark: Remark


def _remarks(facts: Facts) -> Frame:
    return Frame([_RemarkRow(run, remark) for run in facts.runs for remark in run.remarks], facts)


REMARKS: Final = Table(
    "remarks",
    "what a log says beside its steps: caught errors, changed settings, what looks fatal and is not",
    "one saying of a log",
    (
        *RUN,
        Column("label", WORD, "the rank that printed it; NULL where the line names none", "remark.label"),
        Column("kind", WORD, "what sort of line", "remark.kind", required=True),
        Column("what", TEXT, "in our words", "remark.what", required=True),
        Column("line", TEXT, "the line", "remark.text", required=True),
        Column("place", TEXT, "file:line, of the first where there are several", "remark.place", required=True),
        Column("said", COUNT, "how many lines said so", "remark.count", required=True),
        Column("figures", JSON, "its figures, of the last line", "remark.values", required=True),
    ),
    _remarks,
)


def _losses(facts: Facts) -> Frame:
    return Frame(facts.material.timeline.read.losses, facts)


LOSSES: Final = Table(
    "losses",
    "what reading found that was not a whole event",
    "one kind of loss",
    (
        Column("kind", WORD, "a short name", required=True),
        Column("found", COUNT, "how often", "count", required=True),
        Column("lost", FLAG, "data is gone; false: it was only noted", required=True),
        Column("what", TEXT, "in one sentence", "says", required=True),
        Column("examples", JSON, "the first places", required=True),
    ),
    _losses,
)
