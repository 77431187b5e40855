"""The kinds of facts, and what each holds."""

from __future__ import annotations

from typing import Final

KINDS: Final[dict[str, str]] = {
    "server_args": "arguments: dict, as SGLang resolved them (from the repr of ServerArgs, or of a dict)",
    "version": "what (nccl, torch, sglang, ...), version",
    "dist_init_begin": "",
    "dist_init_end": "mem_usage?: Amount, elapsed_s?: float (`Init parallel ends` of 0.5.22 too)",
    "mem_baseline": "mem_usage: Amount",
    "weights_begin": "avail: Amount",
    "weights_end": "model_class, dtype?, quantization?, avail: Amount, mem_usage?: Amount, elapsed_s?",
    "weights_committed": "elapsed_s",
    "update_weights_begin": "avail: Amount",
    "update_weights_end": "",
    "kv_cap": "asked: int, profiled: int (may be negative)",
    "kv_dtype": "dtype",
    "kv_alloc": (
        "cache (`KV Cache`, or what stands there), tokens: int, dtype?, k?, v?, kv?: Amount, bound: bool "
        "(addresses only)"
    ),
    "kv_post_capture": (
        "what (sized, allocated, draft_allocated, headroom, workspace), tokens?, kv?, avail?, size?, dtype?"
    ),
    "swa_tokens": "full?: int, swa: int",
    "swa_mem": "size: Amount, swa: int, full: int, bound: bool",
    "mamba_alloc": "slots?: int, conv: Amount, ssm: Amount, intermediate_ssm?, intermediate_conv?: Amount",
    "pool_end": "avail: Amount",
    "host_pool": "size: Amount (decimal GB: 10^9)",
    "mm_reserve": "size: Amount",
    "symmetric_pool": "size: Amount",
    "graph_begin": (
        "graph (decode, prefill, draft; verify counts as decode), what: the words between, avail?: Amount, "
        "sizes?: list[int], step?"
    ),
    "graph_progress": "graph?, size?: int, avail: Amount (tqdm bar; one fact per bar's last state)",
    "graph_end": "graph, what, avail?, mem_usage?: Amount, elapsed_s?, step?",
    "allreduce_registered": "addresses: int",
    "allreduce_disabled": "cls, reason",
    "allreduce_config": "symmetric?, local?: Amount, multicast?, pull?",
    "imbalance": "text's own figures: least?, most?: Amount (`The memory capacity is unbalanced`)",
    "capacity": (
        "max_total_num_tokens, chunked_prefill_size?, max_prefill_tokens, max_running_requests, context_len: "
        "int, avail?: Amount, device?: gpu or cpu"
    ),
    "lora": "op (loading, unloading), state (starts, completes), adapter, avail: Amount",
    "ready": "(`The server is fired up and ready to roll!`)",
    "batch": "phase (prefill, decode), token_usage?: float, tokens?: int (only the last before another fact is kept)",
    "retract": "retracted: int, aborted?, gained?: int, ratio_before?, ratio_after?: float",
    "retract_abort": "request, why?",
    "no_memory": (
        "family (fraction: `Please try to increase`; weights: `Loaded weights leave`; pool: the other sums "
        "that came out too small), fraction?: float, raise_above?: float, minimum?: float (printed, 4 "
        "decimals)"
    ),
    "out_of_memory": (
        "(torch's, CUDA's, HIP's, NCCL's words: the entry's text holds the message; see explain.oom_message), caught?"
    ),
    "exception": "type, message (whole), stacktrace?, caught?: bool (SGLang logged it and went on)",
    "ended": "how (signal, child, killed, shutdown, crash), signal?, exit_code?, pid?",
    "not_memory": "what (see collect.logs.not_memory), message",
    "harmless": "what: a line that looks fatal and is not",
    "figures": "what: the line, at most 200 characters; figures: list[Amount] (a figure of memory, no kind of its own)",
    "adjusted": (
        "name, value: SGLang changed an argument by itself and says so (mem_fraction_static, "
        "chunked_prefill_size, ...)"
    ),
}
"""kind -> its values; `?` may be absent. Figures of memory are Amounts."""
