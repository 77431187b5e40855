"""Which texts of SGLang's are memory lines, and what kind each must be read as.

A text is a memory line where a figure of memory stands in it, or where a row below says so. What has a figure and no
row is `figures`: kept, and summed nowhere.
"""

from __future__ import annotations

import re
from typing import Final

FAMILIES: Final[tuple[tuple[str, str], ...]] = (
    (r"^server_args=", "server_args"),
    (r"^sglang is using nccl==", "version"),
    (r"^Init (?:torch distributed|parallel) begin", "dist_init_begin"),
    (r"^Init (?:torch distributed|parallel) ends", "dist_init_end"),
    (r"^Memory baseline taken", "mem_baseline"),
    (r"^Load weight begin", "weights_begin"),
    (r"^Load weight end\. Committed", "weights_committed"),
    (r"^Load weight end", "weights_end"),
    (r"^Update .*weights .*begin\. avail mem", "update_weights_begin"),
    (r"^Update weights end", "update_weights_end"),
    (r"^max_total_tokens=.* is larger than the profiled value", "kv_cap"),
    (r"^Using KV cache dtype", "kv_dtype"),
    (r"KV Cache (?:is allocated|VA upper bound)", "kv_alloc"),
    (r"^Post-capture KV sizing: full_layer_tokens|^Use [Ss]liding window memory pool", "swa_tokens"),
    (r"^Post-capture KV sizing: max_running_requests", "adjusted"),
    (r"^Post-capture KV sizing", "kv_post_capture"),
    (r"^SWAKVPool (?:mem usage|VA upper)", "swa_mem"),
    (r"^Mamba Cache is allocated", "mamba_alloc"),
    (r"^Memory pool end", "pool_end"),
    (r"^Allocating .* GB host memory", "host_pool"),
    (r"^Reserving .* GB of the KV budget", "mm_reserve"),
    (r"^Pre-allocating symmetric memory pool", "symmetric_pool"),
    (r"Capturing.*avail_mem=", "graph_progress"),
    (r"^Capture .* begin(?:\.| \(step)", "graph_begin"),
    (r"^Capture .* end(?:\.| \(step)", "graph_end"),
    (r"^Register(?:ing|ed) .* cuda graph addresses", "allreduce_registered"),
    (r"^All Reduce config", "allreduce_config"),
    (r"^(?:Custom|\S+ )?(?:quick )?[aA]ll[rR]educe\w* is disabled (?:because|due|based)", "allreduce_disabled"),
    (r"^Setup Custom allreduce failed|^Custom quick allreduce is only supported on ROCm", "allreduce_disabled"),
    (r"SymmMemCommunicator: .* communicator is not available", "allreduce_disabled"),
    (r"The memory capacity is unbalanced", "imbalance"),
    (r"^max_total_num_tokens=.*max_prefill_tokens=", "capacity"),
    (r"^LoRA adapter (?:un)?loading (?:starts|completes)", "lora"),
    (r"^The server is fired up", "ready"),
    (r"^Prefill batch|^Decode batch", "batch"),
    (r"#retracted_reqs: ", "retract"),
    (r"^retract_decode: aborted", "retract_abort"),
    (r"^Automatically (?:reduce|adjust|turn off) .*--(?:mem-fraction-static|chunked-prefill-size)", "adjusted"),
    (r"adjusted --mem-fraction-static from|^Setting (?:mem fraction|KV cache dtype)", "adjusted"),
    (r"^Setting (?:max_running_requests|swa_full)", "adjusted"),
    (r"^DP attention is enabled.*refill size is adjusted|^max_running_requests (?:was reduced|is capped)", "adjusted"),
    (r"^Rounding --chunked-prefill-size|setting symmetric memory prealloc size", "adjusted"),
    (r"^Received sigquit from a child|^SIGQUIT received|^Received SIGQUIT|^SIGTERM received|rece?ive sigterm", "ended"),
    (r"crashed with exit code|failed with an exit code|died during init|scheduler is dead|^Exit code: ", "ended"),
    (r"^Gracefully exiting|^Initialization failed|^Signal SIGTERM received", "ended"),
    (r"Please try to increase --mem-fraction-static|Loaded weights leave no GPU memory", "no_memory"),
    (r"Not enough GPU memory for hybrid|state cache is too small|Not enough space for mamba c", "no_memory"),
    (r"leaves no room for (?:the full|real data)|cannot hold even one|Memory pool size is too small", "no_memory"),
    (r"[Oo]ut of memory\.? (?:Try to lower|This should never|Please set a smaller)|runs out of memory", "no_memory"),
    (r"after retracting all other|No space left for only one request|cannot fit ONE worst-case", "no_memory"),
    (r"Available memory \x00GB is less than", "figures"),
    (r"[Ww]atchdog timeout \(", "not_memory"),
    (r"Not enough host memory (?:available|for)|memfabric host memory exhausted", "not_memory"),
    (r"^Ignore import error when loading|^Failed to load generation config", "harmless"),
)  # fmt: skip
EXCLUDED: Final[tuple[tuple[str, str], ...]] = (
    (r"support B, KB, MB, GB only|expected '2MB' or '1GB'|smaller than 1MB", "names units, measures nothing"),
    (r"GB/s|MB/s|GiB/s", "a bandwidth"),
    (r"\bRGB\b|GB systems|aarch64", "no unit of memory"),
    (r"(?:SIZE|LIMIT|CACHE|POOL|BUFFER)_(?:GB|MB)\b[^0-9]*$", "a variable's name, without a figure"),
)
"""(text, why it is no memory line although it looks like one); each must match something."""
SKIPPED: Final = re.compile(
    r"sglang/(?:test|bench\w*|multimodal_gen|lang|eval|profiler|auto_benchmark|jit_kernel|kernels|cli|check_env)\b"
    r"|sglang/srt/(?:debug_utils|multimodal_gen)/|/benchmark/|/test_|srt/mem_cache/storage/"
)
"""Files that are no part of a server of text models, or (storage of the third tier) speak of disks and other hosts."""
_FIGURE: Final = re.compile(r"\x00 ?(?:GiB|MiB|GB|MB)(?![\w/])")


def kind_of(words: str) -> str | None:
    """Return the kind that a text must be read as, None where it is no memory line; a slot in it is a NUL."""
    if any(re.search(pattern, words) for pattern, _ in EXCLUDED):
        return None
    for pattern, kind in FAMILIES:
        if re.search(pattern, words, re.DOTALL):
            return kind
    return "figures" if _FIGURE.search(words) else None
