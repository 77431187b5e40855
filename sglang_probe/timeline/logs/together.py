"""Runs of events and runs of logs: a log goes into the one events run that it is of, or stays alone and says why."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from sglang_probe.figures import counted, listed
from sglang_probe.timeline.logs.figures import ranks_by_label
from sglang_probe.timeline.logs.merged import Told, merged
from sglang_probe.timeline.logs.same import Match, match
from sglang_probe.timeline.logs.seats import seats_of
from sglang_probe.timeline.model import Run

MANY: Final = 3


def together(runs: Sequence[Run], logs: Sequence[Told]) -> tuple[Run, ...]:
    """Return the runs of events, each with its logs merged into it, then the logs that are of none of them."""
    found = list(runs)
    taken: list[set[str]] = [set() for _ in runs]
    alone: list[Run] = []
    for told in logs:
        answers = [match(told.log, run) for run in runs]
        fitting = [place for place, answer in enumerate(answers) if answer.verdict == "same"]
        ranks = {seat.label or "" for seat in seats_of(told.log)[0]}
        if len(fitting) != 1:
            alone.append(_by_itself(told.run, _why(runs, answers, fitting)))
            continue
        place = fitting[0]
        if taken[place] & (ranks & ranks_by_label(runs[place]).keys()):
            why = f"not merged: another log of the same ranks is merged into {runs[place].run_id} already"
            alone.append(_by_itself(told.run, why))
            continue
        taken[place] |= ranks
        found[place] = merged(found[place], told, answers[place])
    return (*found, *alone)


def _by_itself(run: Run, why: str | None) -> Run:
    return run if why is None else msgspec.structs.replace(run, notes=(*run.notes, why))


def _why(runs: Sequence[Run], answers: Sequence[Match], fitting: Sequence[int]) -> str | None:
    """Say why a log was merged into no events; None where there were none."""
    if not runs:
        return None
    if fitting:
        names = listed([runs[place].run_id for place in fitting], MANY)
        return f"not merged: {counted(len(fitting), 'run')} of events fit it alike ({names})"
    said = [_said(run, answer) for run, answer in zip(runs, answers, strict=True)]
    return f"not merged with events: {'; '.join(said[:MANY])}{' ...' if len(said) > MANY else ''}"


def _said(run: Run, answer: Match) -> str:
    if answer.verdict == "not the same":
        return f"it is not {run.run_id}'s, {', and '.join(answer.reasons)}"
    return f"whether it is {run.run_id}'s cannot be told, {', '.join(answer.reasons)}"
