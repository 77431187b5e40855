"""What the rules say of runs built by hand, by rule."""

from __future__ import annotations

from typing import Any

from sglang_probe.collect.report import ReadReport
from sglang_probe.explain.engine import explain
from sglang_probe.explain.model import Finding
from sglang_probe.timeline.ledger_model import Neighbour
from sglang_probe.timeline.model import Failure, Kv, Process, Provenance, Run, Timeline, Worker
from tests.timeline.building import build_budget, build_rank, build_run, build_step, gib

READ = ReadReport(files=1, lines=1, bytes=1, events=1)
ARGUMENTS = {
    "chunked_prefill_size": 8192,
    "cuda_graph_max_bs": 32,
    "tp_size": 2,
    "pp_size": 1,
    "kv_cache_dtype": "auto",
}
"""SGLang's resolved arguments, as far as the rules ask."""


def findings(run: Run, *others: Run, tokens: int = 0) -> list[Finding]:
    """Return the findings about a run, the leading one first."""
    return list(explain(Timeline(runs=(run, *others), read=READ), tokens).runs[0].findings)


def of(rule: str, run: Run, *others: Run, tokens: int = 0) -> Finding:
    """Return the one finding of a rule."""
    (found,) = [one for one in findings(run, *others, tokens=tokens) if one.rule == rule]
    return found


def rules(run: Run, *others: Run) -> list[str]:
    """Return the rules that found something, the leading one first."""
    return [one.rule for one in findings(run, *others)]


def rank(position: int = 0, size: int = 2, *, pre_load: float = 94.0, available: float = 21.7, fraction: float = 0.55,
         weights: float = 72.3, kv: Kv | None = None, state: Any = "ok", tenants: tuple[Neighbour, ...] = (),
         budget: dict[str, Any] | None = None, **more: Any) -> Process:  # fmt: skip
    """Return a rank with a whole start up to its budget; figures in GiB."""
    steps = (
        build_step("scheduler.init", 0, 94.5, available, 9.0, state=state),
        build_step("dist.init", 1, 94.5, pre_load, 4.0),
        build_step("weights.load", 1, pre_load, available, 3.0, worker="target", attributes={"dtype": "bfloat16"}),
        build_step("kv.profile", 1, available, available, 0.1, worker="target", state=state),
    )
    known: dict[str, Any] = {
        "static_budget_bytes": round(gib(pre_load) * fraction),
        "pre_load_local_bytes": gib(pre_load),
        "available_local_bytes": gib(available),
        "bytes_per_token": 70272,
        "result_unit": "bytes",
        **(budget or {}),
    }
    told = build_budget(available, pre_load, fraction, **known)
    if "result" not in known:
        known["result"] = told.rest_bytes
        told = build_budget(available, pre_load, fraction, **known)
    worker = Worker(worker="target", weights_bytes=gib(weights), weights_torch_bytes=gib(weights), budget=told, kv=kv)
    return build_rank(position, size, steps, **{"workers": (worker,), "neighbours": tenants, **more})


def failed(*ranks: Process, phase: str = "kv.profile", failure: Failure | None = None, **more: Any) -> Run:
    """Return a run that failed, on its first rank."""
    known: dict[str, Any] = {"provenance": Provenance(given={"--tp": "2"}, effective=ARGUMENTS)}
    return build_run(
        ranks, "failed", **{"failed_phase": phase, "failed_label": "TP0", "failure": failure, **known, **more}
    )


def ready(*ranks: Process, **more: Any) -> Run:
    """Return a run that is ready."""
    known: dict[str, Any] = {"provenance": Provenance(given={"--tp": "2"}, effective=ARGUMENTS)}
    return build_run(ranks, "ready", **{**known, **more})


def tenant(amount: float, pid: int = 114880, **more: Any) -> Neighbour:
    """Return another process that holds so many GiB of a rank's device."""
    known: dict[str, Any] = {"name": "python3", "user": "ops", "kind": "foreign", "began_before_s": 7380.0}
    return Neighbour(pid=pid, bytes=gib(amount), peak_bytes=gib(amount), **{**known, **more})


def raising(phase: str, message: str, kind: str = "torch.OutOfMemoryError", *, free: float = 0.15, **more: Any) -> Run:
    """Return a run whose first rank raised in a phase, with so many GiB free."""
    failure = Failure(id="e1", type=kind, message=message, raised_in="torch:empty:1", **more)
    step = build_step(f"{phase} all", 1, free + 0.1, free, 0.5, state="error", failure=failure, worker="target")
    first, second = rank(0, fraction=0.9, weights=60.0, available=34.0), rank(1, fraction=0.9, available=34.0)
    broken = rank(0, fraction=0.9, weights=60.0, available=34.0)
    pools = () if phase == "weights.load" else (build_step("kv.pool all", 1, 34.0, free + 0.1, 0.5, worker="target"),)
    process = build_rank(0, 2, (*first.steps[1:], *pools, step), workers=broken.workers)
    return failed(process, second, phase=phase, failure=failure)
