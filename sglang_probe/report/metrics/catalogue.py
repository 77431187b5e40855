"""Every metric of a report: its name, unit, labels and meaning. docs/metrics.md is held to this table.

All are gauges: a report is one moment of a run, so nothing in it counts on from scrape to scrape, and the classic text
format that node_exporter reads knows none of OpenMetrics' info, stateset and unknown. Sums over a label mean something.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Metric(NamedTuple):
    """One row of the table."""

    name: str
    """As Prometheus has it, with its unit."""
    labels: tuple[str, ...]
    help: str
    unit: str = ""
    """Base unit, the end of the name; nothing for a count, a state and a fact."""
    opentelemetry: str | None = None
    """Its name in OpenTelemetry's semantic conventions."""


class Sample(NamedTuple):
    """One value of a metric."""

    metric: Metric
    labels: tuple[str, ...]
    """In the order of the metric's."""
    value: float | None
    """None is unknown: it is not written."""


CARD: Final = (
    "run", "host_name", "hw_id", "hw_type", "hw_name", "hw_model", "hw_vendor", "hw_driver_version",
)  # fmt: skip
"""OpenTelemetry's `host.name` and `hw.*`, as Prometheus spells them."""
RANK: Final = ("run", "rank")
WORKER: Final = ("run", "rank", "worker")
PHASE: Final = ("run", "rank", "phase", "worker")

CARD_LIMIT: Final = Metric(
    "hw_gpu_memory_limit_bytes",
    CARD,
    "Size of the GPU's memory: NVML's total, or CUDA's",
    "bytes",
    "hw.gpu.memory.limit",
)
CARD_USAGE: Final = Metric(
    "hw_gpu_memory_usage_bytes",
    CARD,
    "GPU memory in use, by whomever, at the last reading of the run: the limit less what was free",
    "bytes",
    "hw.gpu.memory.usage",
)
CARD_UTILIZATION: Final = Metric(
    "hw_gpu_memory_utilization_ratio", CARD, "Usage as a part of the limit", "ratio", "hw.gpu.memory.utilization"
)

BUILD_INFO: Final = Metric("sglang_probe_build_info", ("version",), "1; which SGLang Probe wrote this report")
READ_FILES: Final = Metric("sglang_probe_read_files", ("kind",), "Files that were read, by kind: events or log")
READ_EVENTS: Final = Metric("sglang_probe_read_events", (), "Events of the probe that were read")
READ_LOSSES: Final = Metric(
    "sglang_probe_read_losses", ("kind", "lost"), "What was read and is no whole event; lost is true where data is gone"
)

RUN_INFO: Final = Metric(
    "sglang_probe_run_info",
    (
        "run", "source", "model", "sglang_version", "sglang_commit", "sglang_dirty", "torch_version", "cuda_version",
        "nccl_version", "driver_version", "python_version", "probe_version",
    ),
    "1; what a run was made of, and whether it is told by events, a log or both",
)  # fmt: skip
OUTCOME: Final = Metric(
    "sglang_probe_run_outcome", ("run", "outcome"), "1 for how the run ended, 0 for how it did not"
)
FAILURE_INFO: Final = Metric(
    "sglang_probe_run_failure_info",
    ("run", "phase", "rank", "type"),
    "1; of a run that failed or died: the phase, the first rank, the type of its exception",
)
READY: Final = Metric(
    "sglang_probe_run_ready_seconds", ("run",), "From the first event until every rank was up", "seconds"
)
BEGAN: Final = Metric(
    "sglang_probe_run_started_timestamp_seconds", ("run",), "When its first event was written, since 1970", "seconds"
)
LAST_EVENT: Final = Metric(
    "sglang_probe_run_last_event_timestamp_seconds", ("run",), "When its last event was written, since 1970", "seconds"
)
RANKS: Final = Metric(
    "sglang_probe_ranks",
    ("run", "state"),
    "Ranks by the state of their scheduler.init; none: it did not begin; missing: the rank wrote nothing",
)
FINDINGS: Final = Metric("sglang_probe_findings", ("run", "rule", "severity"), "What explain found, by its rule")
LEADING_INFO: Final = Metric(
    "sglang_probe_leading_finding_info",
    ("run", "rule", "severity", "confidence"),
    "1; the rule that leads the explanation",
)
HEALTHY: Final = Metric("sglang_probe_healthy", ("run",), "1 where the probe saw all it should have seen, else 0")
LOST_EVENTS: Final = Metric("sglang_probe_lost_events", ("run",), "Events that no file has, dropped ones included")
DROPPED_EVENTS: Final = Metric("sglang_probe_dropped_events", ("run",), "Events that the probe could not write")
DEGRADATIONS: Final = Metric(
    "sglang_probe_degradations", ("run", "source", "reason"), "How often the probe could not read or do something"
)
ROLE_HOOKED: Final = Metric(
    "sglang_probe_role_hooked", ("run", "role"), "1 where a hook of this role was applied in some process, else 0"
)
FAILED_HOOKS: Final = Metric("sglang_probe_failed_hooks", ("run",), "Hooks that could not be applied")
UNKNOWN_MEMORY: Final = Metric(
    "sglang_probe_memory_unknown_ranks", ("run", "category", "reason"), "Ranks that do not know a category, and why"
)
UNKNOWN_COST: Final = Metric(
    "sglang_probe_phase_unknown_cost_steps", ("run", "phase"), "Steps of which it is not known what they cost"
)

RANK_INFO: Final = Metric(
    "sglang_probe_rank_info",
    ("run", "rank", "host_name", "pid", "gpu_index", "hw_id", "hw_model"),
    "1; where a rank ran, and on which device",
)
RANK_START: Final = Metric("sglang_probe_rank_start_seconds", RANK, "How long its scheduler.init took", "seconds")
MEMORY: Final = Metric(
    "sglang_probe_memory_bytes",
    ("run", "rank", "category"),
    "What the memory of a rank's device was spent on at the end, free included; unexplained may be negative; "
    "where all categories are known they sum to the limit",
    "bytes",
)
MEMORY_LIMIT: Final = Metric("sglang_probe_memory_limit_bytes", RANK, "What the categories sum to", "bytes")
MEMORY_PRECISION: Final = Metric(
    "sglang_probe_memory_precision_bytes",
    ("run", "rank", "category"),
    "How far off a category may be; absent: it is exact",
    "bytes",
)
FOREIGN: Final = Metric(
    "sglang_probe_foreign_bytes",
    ("run", "rank", "left_over"),
    "Memory on a rank's device held by processes that are not of this run; left_over: their parent has ended",
    "bytes",
)
FOREIGN_PROCESSES: Final = Metric(
    "sglang_probe_foreign_processes", ("run", "rank", "left_over"), "How many such processes there are"
)
PHASE_COST: Final = Metric(
    "sglang_probe_phase_cost_bytes",
    PHASE,
    "What the steps of a phase took from the device, steps inside them left out; negative: given back",
    "bytes",
)
PHASE_PRECISION: Final = Metric(
    "sglang_probe_phase_precision_bytes", PHASE, "How far off that may be; absent: it is exact", "bytes"
)
PHASE_SECONDS: Final = Metric(
    "sglang_probe_phase_seconds", PHASE, "How long the steps of a phase took, steps inside them left out", "seconds"
)
WEIGHTS: Final = Metric(
    "sglang_probe_weights_bytes", WORKER, "What loading a model's weights took from the device", "bytes"
)
WEIGHTS_PRECISION: Final = Metric(
    "sglang_probe_weights_precision_bytes", WORKER, "How far off that may be; absent: it is exact", "bytes"
)
PRE_LOAD: Final = Metric(
    "sglang_probe_budget_pre_load_bytes", WORKER, "Pre-load memory: free before the weights, the ranks' least", "bytes"
)
AVAILABLE: Final = Metric(
    "sglang_probe_budget_available_bytes", WORKER, "Available when the budget was made, the ranks' least", "bytes"
)
STATIC: Final = Metric(
    "sglang_probe_budget_static_bytes", WORKER, "Static budget: pre-load memory x mem_fraction_static", "bytes"
)
SLACK: Final = Metric(
    "sglang_probe_budget_slack_bytes", WORKER, "Slack: pre-load memory x (1 - mem_fraction_static), or a floor", "bytes"
)
DEDUCTION: Final = Metric(
    "sglang_probe_budget_deduction_bytes", (*WORKER, "deduction"), "What else the budget takes off", "bytes"
)
REST: Final = Metric(
    "sglang_probe_budget_rest_bytes", WORKER, "What is left for the KV cache: available - slack - deductions", "bytes"
)
FRACTION: Final = Metric("sglang_probe_mem_fraction_static_ratio", WORKER, "The fraction in force", "ratio")
FRACTION_GIVEN: Final = Metric(
    "sglang_probe_mem_fraction_static_given_ratio", WORKER, "The fraction on the command line", "ratio"
)
MINIMUM: Final = Metric(
    "sglang_probe_minimum_viable_fraction_ratio",
    WORKER,
    "The fraction at which the KV cache would be empty: 1 - (available - deductions) / pre-load",
    "ratio",
)
MINIMUM_PRINTED: Final = Metric(
    "sglang_probe_minimum_viable_fraction_printed_ratio", WORKER, "The same in SGLang's own message", "ratio"
)
VERIFIED: Final = Metric(
    "sglang_probe_budget_verified", WORKER, "1 where these terms reproduce SGLang's own result, 0 where they do not"
)
BUDGET_PRECISION: Final = Metric(
    "sglang_probe_budget_precision_bytes", (*WORKER, "term"), "How far off a term may be; absent: it is exact", "bytes"
)
FRACTION_PRECISION: Final = Metric(
    "sglang_probe_budget_precision_ratio", (*WORKER, "term"), "The same of a fraction", "ratio"
)
KV_TOKENS: Final = Metric("sglang_probe_kv_tokens", WORKER, "Tokens that the KV cache holds")
KV_BYTES: Final = Metric("sglang_probe_kv_bytes", WORKER, "Size of the KV cache", "bytes")
KV_PER_TOKEN: Final = Metric("sglang_probe_kv_bytes_per_token", WORKER, "Bytes that a token takes in the KV cache")
KV_PRECISION: Final = Metric(
    "sglang_probe_kv_precision_bytes", WORKER, "How far off its size may be; absent: it is exact", "bytes"
)

METRICS: Final = tuple(one for one in list(globals().values()) if isinstance(one, Metric))
"""In the order in which they stand here."""
