"""`report -o` with the endings whose readers are strict, as a user runs it: events and a log, several runs at once."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

from prometheus_client.openmetrics.parser import text_string_to_metric_families

from tests.report.reported import CAR, HEALTHY_LOG, LOWFRAC
from tests.report.trace.checker import Trace

Probe = Callable[..., "subprocess.CompletedProcess[str]"]


def test_several_runs_are_in_one_file_of_metrics_and_in_one_trace(probe: Probe, tmp_path: Path) -> None:
    done = probe("report", CAR, LOWFRAC, HEALTHY_LOG, "-o", "all.prom", "-o", "all.trace.json")

    assert (0, "") == (done.returncode, done.stderr)
    text = (tmp_path / "all.prom").read_text(encoding="utf-8")
    families = {family.name: family for family in text_string_to_metric_families(text)}  # type: ignore[no-untyped-call]
    names = {sample.labels["run"] for sample in families["sglang_probe_run_info"].samples}
    assert {"car", "lowfrac", HEALTHY_LOG.name} == names
    titles = Trace((tmp_path / "all.trace.json").read_text(encoding="utf-8")).processes().values()
    for name in names:
        assert 1 == sum(title.startswith(f"run {name}: ") for title in titles)


def test_a_damaged_recording_gives_whole_files(probe: Probe, tmp_path: Path) -> None:
    cut = tmp_path / "cut"
    cut.mkdir()
    for file in LOWFRAC.iterdir():
        content = file.read_bytes()
        (cut / file.name).write_bytes(content[: len(content) * 2 // 3])

    done = probe("report", cut, "-o", "cut.prom", "-o", "cut.trace.json")

    assert 0 == done.returncode
    Trace((tmp_path / "cut.trace.json").read_text(encoding="utf-8"))
    text = (tmp_path / "cut.prom").read_text(encoding="utf-8")
    families = {family.name for family in text_string_to_metric_families(text)}  # type: ignore[no-untyped-call]
    assert {"sglang_probe_read_losses", "sglang_probe_run_outcome"} <= families
