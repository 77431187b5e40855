"""What of a run's files was not read: where some were not, nothing is known of the ranks that write there."""

from __future__ import annotations

from sglang_probe.collect.read import Collected
from sglang_probe.figures import counted
from sglang_probe.timeline.given import unread_beside
from sglang_probe.timeline.model import Run


def unseen(collected: Collected, run: Run) -> str:
    """Return what of a run's files was not read, in words: ranks may be up, or not, whose events lie there."""
    files = {file for one in collected.runs if one.run_id == run.run_id for member in one.members
             for file in member.process.files}  # fmt: skip
    beside = unread_beside(sorted(files))
    lost = [loss for loss in collected.report.losses if loss.kind in {"unreadable_file", "empty_file"}]
    foreign = [
        place.file for loss in collected.report.losses if loss.kind == "foreign_file"
        for place in loss.examples if place.file.endswith(".jsonl")
    ]  # fmt: skip
    count = max(sum(loss.count for loss in lost) + len(foreign), beside)
    if not count:
        return ""
    name = next((place.file for loss in lost for place in loss.examples), next(iter(foreign), ""))
    which = f" ({name})" if name else ""
    return f"{counted(count, 'file')} of this run {'was' if count == 1 else 'were'} not read{which}"
