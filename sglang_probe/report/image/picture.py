"""What the picture shows, before anything is drawn: pure data of one run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final, NamedTuple

from sglang_probe.explain.engine import as_printed
from sglang_probe.explain.model import Explanation, Finding
from sglang_probe.explain.subject import Subject
from sglang_probe.explain.titles import title_of
from sglang_probe.figures import counted, gib, seconds
from sglang_probe.report.budget import worked
from sglang_probe.report.explain import SEVERITY_WORDS, lever_words
from sglang_probe.report.fold import Fold, folds_of
from sglang_probe.report.outcome import headline, process_name, why
from sglang_probe.report.pick import pick
from sglang_probe.report.plain import printable
from sglang_probe.report.series import (
    FREE,
    IN_USE,
    LOG_SUM,
    NOT_TOLD,
    ON_THE_HOST,
    Moment,
    RunClock,
    moments,
    not_told_apart,
)
from sglang_probe.timeline.label_ranges import named
from sglang_probe.timeline.ledger_rows import KEYS, NAMES
from sglang_probe.timeline.model import Process, Run, Step, Timeline
from sglang_probe.timeline.processes import is_cpu, last_ledger, ranks_of

MOST_RANKS: Final = 16
"""Bars of ranks that still can be read in one picture."""
LONGEST_LABEL: Final = 24
FAILED: Final = frozenset({"error", "died"})
ENDED_BADLY: Final = FAILED | {"interrupted"}
WORTH_SHOWING: Final = 1 << 20
"""Bytes by which a category must move for a step to get room of its own."""


class Band(NamedTuple):
    """One category over the steps."""

    key: str
    name: str
    amounts: tuple[int, ...]
    """Bytes after each step; 0 where it is unknown, which is in `unexplained` then."""
    at_end: str
    """GiB after the last step, with the decimals that it bears."""


class Stretch(NamedTuple):
    """A phase on the axis: from one step's place up to, not including, another's."""

    begin: int
    end: int
    says: str
    """Its name, and how long it took or how it ended."""
    failed: bool


class Bar(NamedTuple):
    """One rank at its end."""

    label: str
    amounts: dict[str, int]
    says: str
    """What is free in GiB, and how it ended where not well."""
    failed: bool


class Said(NamedTuple):
    """A paragraph below the title."""

    text: str
    bold: bool = False


class Picture(NamedTuple):
    """Everything that is drawn. Bytes throughout."""

    title: str
    says: tuple[Said, ...]
    """Lines below the title."""
    label: str
    """Whose memory is shown over the phases."""
    rank: str
    """The same with its card."""
    bands: tuple[Band, ...]
    total_bytes: int | None
    total: str
    """GiB, as printed."""
    stretches: tuple[Stretch, ...]
    bars: tuple[Bar, ...]
    bars_title: str
    nothing: str = ""
    """Why there is no chart; empty where there is one."""


def picture_of(timeline: Timeline, explanation: Explanation) -> Picture:
    """Return the picture of the newest run of a timeline."""
    if not timeline.runs:
        return _empty("no run", (), "Nothing was read that tells of a server's start.")
    run = timeline.runs[-1]
    with as_printed((run,)):
        return _picture(run, explanation.runs[-1].findings, len(timeline.runs))


def _picture(run: Run, findings: Sequence[Finding], runs: int) -> Picture:
    clock = RunClock(run)
    process = _shown_rank(run, findings)
    title = f"{printable(run.run_id)}: {printable(headline(run))}"
    says = tuple(Said(printable(said.text), said.bold) for said in _says(run, findings, runs))
    if process is None:
        return _empty(title, says, "No rank of this run recorded any memory.")
    kept = _kept(moments(process, clock))
    if not kept:
        return _empty(title, says, f"{process_name(process)} recorded no memory at a known time.")
    bars, bars_title = _bars(run, clock)
    total = kept[-1].total_bytes
    return Picture(
        title=title,
        says=says,
        label=process_name(process)[:LONGEST_LABEL],
        rank=f"{process_name(process)}{_card(process)}",
        bands=_bands(kept, host=is_cpu(process)),
        total_bytes=total,
        total=gib(total),
        stretches=tuple(_stretches(process, kept)),
        bars=bars,
        bars_title=bars_title,
    )


def _empty(title: str, says: tuple[Said, ...], why: str) -> Picture:
    return Picture(title, says, "", "", (), None, "", (), (), "", why)


def _shown_rank(run: Run, findings: Sequence[Finding]) -> Process | None:
    """Return the rank to show, or where it recorded no memory the first that did."""
    picked = pick(run, findings)
    wanted = ranks_of(run) if picked is None else (picked.process, *ranks_of(run))
    return next((one for one in wanted if last_or_any_ledger(one) is not None), None)


def last_or_any_ledger(process: Process) -> Step | None:
    """Return the step whose ledger is a rank's last word: its last outermost one, else the last that has any."""
    found = last_ledger(process)
    return found or next((step for step in reversed(process.steps) if step.ledger is not None), None)


def _says(run: Run, findings: Sequence[Finding], runs: int) -> Iterator[Said]:
    """Yield the budget with its numbers, what the leading finding says, and what to do."""
    tightest, reason = Subject(run).tightest, why(run)
    if reason is not None:
        yield Said(reason)
    elif tightest is not None and tightest.budget.rest_bytes is not None:
        yield Said(f"KV budget: {worked(tightest.budget)}")
    for finding in [one for one in findings if one.severity != "info"][:1]:
        who = f", {named(finding.ranks)}" if 0 < len(finding.ranks) < len(ranks_of(run)) else ""
        yield Said(f"{SEVERITY_WORDS[finding.severity]}: {title_of(finding)}{who}", bold=True)
        yield Said(finding.says)
        if finding.lever is not None:
            yield Said(f"do: {lever_words(finding.lever)}", bold=True)
    if run.source == "log":
        yield Said("read from a log: figures have two decimals, and what the log does not hold is not here")
    if runs > 1:
        yield Said(f"the newest of {counted(runs, 'run')} that were read")


def _card(process: Process) -> str:
    device = process.device
    if device is None:
        return ""
    if is_cpu(process):
        return " (CPU, the host's memory)"
    index = "" if device.index is None else f", GPU {device.index}"
    return f"{index}{f' {printable(device.name)}' if device.name else ''}"


def _kept(found: Sequence[Moment]) -> list[Moment]:
    """Return the moments at which a category moved, and the last of each phase."""
    kept: list[Moment] = []
    for position, moment in enumerate(found):
        last_of_phase = position + 1 == len(found) or moment.step.depth <= 1
        if not kept or last_of_phase or _moved(kept[-1], moment):
            kept.append(moment)
    return kept


def _moved(before: Moment, after: Moment) -> bool:
    return any(
        abs((getattr(after.ledger, key) or 0) - (getattr(before.ledger, key) or 0)) >= WORTH_SHOWING for key in KEYS
    )


def _bands(kept: Sequence[Moment], *, host: bool) -> tuple[Band, ...]:
    found = []
    last = kept[-1].step
    for key in KEYS:
        amounts = tuple(getattr(moment.ledger, key) or 0 for moment in kept)
        if any(amounts):
            at_end = gib(amounts[-1], last.ledger_precision_bytes.get(key))
            drawn_as, name = (IN_USE, ON_THE_HOST) if host and key != FREE else (key, NAMES[key])
            found.append(Band(drawn_as, name, amounts, at_end))
    missing = not_told_apart(kept)
    if missing:
        found.append(Band(IN_USE, NOT_TOLD, missing, gib(missing[-1], LOG_SUM)))
    return tuple(sorted(found, key=lambda band: band.key == FREE))


def _stretches(process: Process, kept: Sequence[Moment]) -> Iterator[Stretch]:
    by_id = {step.id: step for step in process.steps}
    begin = 0
    for phase, group in groupby(kept, key=lambda moment: _phase(moment.step, by_id)):
        end = begin + len(list(group))
        step = by_id[phase]
        failed = step.state in FAILED
        ended = f"{seconds(step.duration_s)} s" if step.duration_s is not None else ""
        state = "" if step.state == "ok" else step.state.upper()
        name = f"end of {printable(step.phase)}" if step.depth == 0 and begin else printable(step.phase)
        yield Stretch(begin, end, "\n".join(filter(None, (name.replace(" of ", " of\n"), ended, state))), failed)
        begin = end


def _phase(step: Step, by_id: dict[str, Step]) -> str:
    """Return the id of the phase that a step is part of: the outermost one inside the rank's root."""
    while step.depth > 1 and step.parent in by_id:
        step = by_id[step.parent]
    return step.id


def _bars(run: Run, clock: RunClock) -> tuple[tuple[Bar, ...], str]:
    """Return the ranks at their end; of more than a picture holds, those that agree as one, and the ones with least."""
    found = [(one, step) for one in ranks_of(run) if (step := last_or_any_ledger(one)) is not None]
    if len(found) <= MOST_RANKS:
        bars = [_bar(process_name(process), process, step, clock) for process, step in found]
        return tuple(bars) if len(bars) > 1 else (), "Each rank at its end"
    folds = folds_of(run, [process for process, _ in found])
    steps = {id(process): step for process, step in found}
    by_place = [(fold, steps[id(_own(fold))]) for fold in folds]
    title = f"{len(found):,} ranks at their end, those that agree together"
    if len(by_place) > MOST_RANKS:
        least = {id(step) for _, step in sorted(by_place, key=lambda pair: _free(pair[1]))[:MOST_RANKS]}
        by_place = [pair for pair in by_place if id(pair[1]) in least]
        title = f"{title}: the {MOST_RANKS} of {len(folds):,} groups with the least free"
    return tuple(_bar(_who(fold), fold.shown, step, clock) for fold, step in by_place), title


def _own(fold: Fold) -> Process:
    """Return the process whose figures a fold shows, as it is in the run: the fold's own may have other names."""
    return next(one for one in fold.processes if one.label == fold.shown.label)


def _who(fold: Fold) -> str:
    if len(fold.processes) == 1:
        return process_name(fold.shown)
    return f"{counted(len(fold.processes), 'rank')}, as {process_name(fold.shown)}"


def _bar(name: str, process: Process, step: Step, clock: RunClock) -> Bar:
    ended = next((one.state for one in process.steps if one.state in ENDED_BADLY), "")
    says = f"{gib(_free(step), step.ledger_precision_bytes.get(FREE))} free{f', {ended.upper()}' if ended else ''}"
    return Bar(name[:LONGEST_LABEL], _amounts(process, step, clock), says, ended in FAILED)


def _amounts(process: Process, step: Step, clock: RunClock) -> dict[str, int]:
    amounts = {key: getattr(step.ledger, key) or 0 for key in KEYS}
    if is_cpu(process):
        return {IN_USE: sum(amounts.values()) - amounts[FREE], FREE: amounts[FREE]}
    missing = not_told_apart(moments(process, clock))
    return {**amounts, IN_USE: missing[-1]} if missing else amounts


def _free(step: Step) -> int:
    return 0 if step.ledger is None or step.ledger.free is None else step.ledger.free
