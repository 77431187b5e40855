"""`attributes` per role and per `sglang.probe.*` event.

Every key is optional: an event carries what was known when it was written (a `begin` knows less than its `end`).
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypedDict

from sglang_probe.events.names import TargetState

Target = Annotated[str, "The hooked home, `module:Class.function`, on every memory event."]


class SchedulerInit(TypedDict, total=False):
    """`scheduler.init`: the root span of a rank."""

    target: Target
    gpu_id: int | None
    nnodes: int | None
    max_total_num_tokens: Annotated[int | None, "On end: what the server then serves with."]


class DistInit(TypedDict, total=False):
    """`dist.init`: what the distributed init leaves free is the pre-load memory."""

    target: Target
    pre_load_bytes: Annotated[int | None, "Free after the distributed init and before weights."]
    pre_load_gib: Annotated[float | None, "The float SGLang computed."]
    pre_load_scope: Annotated[Literal["min_over_ranks", "local"] | None, "With several ranks SGLang takes the minimum."]
    backend: Annotated[str | None, "nccl, gloo, ..."]
    distributed_init_method: str | None
    world_size: int | None
    groups: Annotated[dict[str, int], "Group name -> size, as built in this process."]


class DistCommunicator(TypedDict, total=False):
    """`dist.communicator`: the world process group, a GroupCoordinator, or a communicator that one builds."""

    target: Target
    communicator: Annotated[str, "ProcessGroup (the world's), GroupCoordinator, PyNcclCommunicator, ..."]
    group: Annotated[str | None, "The coordinator's unique name: world:0, tp:0, ..."]
    group_size: int | None
    group_rank: int | None
    backend: str | None
    distributed_init_method: str | None
    world_size: int | None
    world_rank: int | None
    disabled: bool | None
    library_version: Annotated[str | None, "NCCL's, where the communicator knows it."]
    custom_allreduce: Annotated[str | None, "On a coordinator's end: the class of its custom all-reduce."]
    asked_bytes: Annotated[int | None, "Buffers that the communicator keeps and whose size is visible."]


class AllReduceBuffer(TypedDict):
    """One buffer of a custom all-reduce."""

    kind: Annotated[str, "meta, data, tmp_result, barrier_in, barrier_out, rank_data, pull, push, signals, ..."]
    bytes: int | None


class AllReduceBuffers(TypedDict, total=False):
    """`allreduce.buffers`: a custom all-reduce instance, or one of its shared buffers."""

    target: Target
    class_: Annotated[str, "Written as `class`."]
    group: str | None
    world_size: int | None
    group_rank: int | None
    max_size_bytes: int | None
    buffers: list[AllReduceBuffer]
    asked_bytes: Annotated[int | None, "Sum of the known sizes; on a buffer's own span, its size_in_bytes."]
    buffer_kind: Annotated[str | None, "On a buffer's own span: what its size says; `buffers` of the whole is certain."]
    sharing: Annotated[Literal["ipc", "vmm"] | None, "How peers map it."]
    disabled: bool | None
    disabled_reason: str | None


class WeightsLoad(TypedDict, total=False):
    """`weights.load`."""

    target: Target
    part: Annotated[str, "model, or lora: the buffers of the adapters in use."]
    bytes: Annotated[int | None, "For lora: all its tensors."]
    model_class: str | None
    dtype: str | None
    quantization: str | None
    weight_load_mem_usage_gib: Annotated[float | None, "SGLang's own figure."]


class KvProfile(TypedDict, total=False):
    """`kv.profile`: every term of the budget.

    Worked example (a rank of the story in docs): pre-load 93.999 GiB, fraction 0.55, available 21.697 GiB.
    slack = 93.999 x (1 - 0.55) = 42.300; rest = 21.697 - 42.300 - 0 = -20.603 GiB, so no token fits;
    minimum viable fraction = 1 - 21.697 / 93.999 = 0.7692.
    """

    target: Target
    available_bytes: Annotated[int | None, "What SGLang measured inside the function: the minimum over ranks."]
    available_gib: Annotated[float | None, "The float SGLang got."]
    available_local_bytes: Annotated[int | None, "Our reading of this device at the same moment."]
    pre_load_bytes: int | None
    pre_load_gib: Annotated[float | None, "The argument SGLang passed."]
    mem_fraction_static: Annotated[float | None, "In force: the value the function used."]
    static_budget_bytes: Annotated[int | None, "pre-load x mem_fraction_static."]
    slack_bytes: Annotated[int | None, "pre-load x (1 - mem_fraction_static), or SGLang's floor on it."]
    slack_is_floor: Annotated[bool, "SGLang's floor on the slack binds (mamba models sized after graph capture)."]
    deductions: Annotated[dict[str, int], "Name (mamba, multimodal, ...) -> bytes taken off the rest."]
    rest_bytes: Annotated[int | None, "available - slack - deductions, as SGLang rounds it; may be negative."]
    bytes_per_token: int | None
    result: Annotated[int | None, "What SGLang's function returned."]
    result_unit: Literal["tokens", "bytes"]
    formula: str
    body: Annotated[str | None, "Fingerprint of SGLang's function; `verified` is true only for one that is known."]
    minimum_viable_fraction: Annotated[float | None, "1 - (available - deductions) / pre-load."]
    minimum_viable_fraction_reason: Annotated[str | None, "Why it is null."]
    minimum_viable_fraction_printed: Annotated[float | None, "As SGLang's own message gives it, four decimals."]
    verified: Annotated[bool | None, "Do the terms reproduce SGLang's result exactly?"]
    verified_reason: Annotated[str | None, "Why it is false or null."]


class KvPool(TypedDict, total=False):
    """`kv.pool`: `begin`/`end` around the building of all pools or of one; `sample` as one pool reports its size."""

    target: Target
    pool: Annotated[str | None, "all, MHA, MLA, DSA, SWA, mamba, request, hybrid, ..."]
    pool_class: str | None
    tokens: Annotated[int | None, "Without the padding page. For a request pool, requests."]
    bytes: int | None
    k_bytes: int | None
    v_bytes: int | None
    dtype: str | None
    page_size: int | None
    layers: int | None
    bytes_per_token: int | None
    max_total_num_tokens: Annotated[int | None, "On `all`: the runner's result after every cap."]
    full_max_total_num_tokens: int | None
    swa_max_total_num_tokens: int | None
    max_running_requests: int | None
    max_total_tokens_given: Annotated[int | None, "--max-total-tokens."]
    profiled_tokens: Annotated[int | None, "Tokens the budget alone would allow."]
    post_capture: Annotated[bool | None, "On `all`: these sizes are addresses alone until graphs are captured."]
    resized: Annotated[bool, "On `all`: the final sizes, after graph capture."]
    reserved_bytes: Annotated[int | None, "Addresses that a pool may grow into after graph capture; `bytes` is backed."]
    window_pool_id: Annotated[str, "On a hybrid's pool: `pool_id` of its part for the sliding-window layers."]
    pool_id: Annotated[str, "The same for every report of one pool in a process; the last report stands."]


class AttentionInit(TypedDict, total=False):
    """`attention.init`."""

    target: Target
    backend: Annotated[str | None, "Class of the backend."]
    prefill_backend: str | None
    decode_backend: str | None
    workspace_bytes: Annotated[int | None, "Null where the backend has no workspace that can be named."]


class GraphCapture(TypedDict, total=False):
    """`graph.capture`."""

    target: Target
    graph: Annotated[str, "all, decode, prefill, draft"]
    captured: Annotated[bool | None, "False when SGLang had graphs off; null where the capture died."]
    sizes: Annotated[list[int] | None, "Batch or token sizes captured, or to be captured where it died."]
    failed_size: Annotated[int | None, "Where it died: the batch size, or tokens for prefill; null outside a size."]
    failed_at: Annotated[str | None, "Where it died: the function of SGLang's capture, such as a runner's `__init__`."]
    runner_class: str | None
    graph_mem_usage_gib: Annotated[float | None, "SGLang's own figure."]
    private_pool_bytes: Annotated[int | None, "Held by torch in private (graph) pools, where torch tells."]


class Versions(TypedDict, total=False):
    """Versions of what decides memory; null where not installed."""

    python: str
    sglang: str | None
    torch: str | None
    cuda: str | None
    driver: str | None
    nccl: str | None
    wrapt: str | None
    structlog: str | None
    probe: str


class ProcessStart(TypedDict, total=False):
    """`sglang.probe.process.start`: written when the first target module loads."""

    executable: str
    prefix: str
    argv: Annotated[list[str], "Redacted."]
    versions: Versions
    distributions: Annotated[dict[str, str] | None, "Distributions that decide memory; asked by the run's maker."]
    sglang_path: str | None
    sglang_commit: str | None
    sglang_dirty: bool | None
    environment: Annotated[dict[str, str], "SGLANG_*, NCCL_*, CUDA_*, PYTORCH_*; secrets redacted."]
    allocator_config: str | None
    pid_namespace: Annotated[str | None, "/proc/self/ns/pid"]
    run_maker: Annotated[bool, "This process made the run id."]


class ProcessRoleKnown(TypedDict, total=False):
    """`sglang.probe.process.role`: what this process is for became known."""

    role: str
    target: Target


class TargetReport(TypedDict, total=False):
    """`sglang.probe.target`: one per row of the target table, as its module loads."""

    target: Target
    role: Annotated[str | None, "Null for rows that only observe a term or an identity."]
    state: TargetState
    reason: Annotated[str | None, "Why nested, displaced, failed or not hooked everywhere; why a removed one stays."]
    fingerprint: Annotated[str | None, "Of SGLang's own function: see sglang_probe.events.fingerprint."]


class ServerArgs(TypedDict, total=False):
    """`sglang.probe.server_args`."""

    given: Annotated[dict[str, Any] | None, "Flag -> value as on the command line; known to the launcher."]
    effective: Annotated[dict[str, Any] | None, "SGLang's resolved ServerArgs; known to the schedulers."]


class Degraded(TypedDict, total=False):
    """`sglang.probe.degraded`: something the probe lost or could not do, said once when it happens."""

    counts: Annotated[dict[str, int], "source:reason -> how often so far in this process."]
    dropped_events: Annotated[int, "Events that could not be written, so far."]
    no_memory_role: Annotated[bool, "A rank came up and none of its memory roles was hooked: the probe saw nothing."]


BY_ROLE: dict[str, type] = {
    "scheduler.init": SchedulerInit,
    "dist.init": DistInit,
    "dist.communicator": DistCommunicator,
    "allreduce.buffers": AllReduceBuffers,
    "weights.load": WeightsLoad,
    "kv.profile": KvProfile,
    "kv.pool": KvPool,
    "attention.init": AttentionInit,
    "graph.capture": GraphCapture,
}

BY_EVENT: dict[str, type] = {
    "sglang.probe.process.start": ProcessStart,
    "sglang.probe.process.role": ProcessRoleKnown,
    "sglang.probe.target": TargetReport,
    "sglang.probe.server_args": ServerArgs,
    "sglang.probe.degraded": Degraded,
}
