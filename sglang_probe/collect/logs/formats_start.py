"""Lines of a start, from the distributed init to the pools: who has what, before and after.

Source: `model_runner`, `bootstrap`, `memory_pool`, `swa_memory_pool`, `kv_cache_configurator`, `pool_configurator`,
`kv_pool_runtime`, `pool_host`, `loader`, `lora_manager`, `scheduler` (earlier `controller`) of SGLang 0.2.0 to 0.5.23.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sglang_probe.collect.logs.amount import NUMBER
from sglang_probe.collect.logs.format import AVAIL, SECONDS, USED, Format, Values, count, gb, line

_DTYPE: Final = r"(?P<dtype>[\w.]+)"


def _bound(groups: Mapping[str, str | None], values: Values) -> Values:
    """A `VA upper bound` is an address range: no memory stands behind it yet."""
    return values | {"bound": groups["_state"] in {"VA upper bound", "reserved VA upper bound"}}


def _alloc(groups: Mapping[str, str | None], values: Values) -> Values:
    values["cache"] = str(groups["_cache"]).strip()
    return _bound(groups, values)


def _quantization(groups: Mapping[str, str | None], values: Values) -> Values:
    """From 0.5.10 on `quant=fp8, fmt=e4m3` may stand where the dtype stood: words that name no figure."""
    given = (groups["_between"] or "").strip(" ,")
    if given:
        values["quantization"] = given
    return values


def _post_capture(groups: Mapping[str, str | None], values: Values) -> Values:
    if "what" not in values:
        values["what"] = "draft_allocated" if groups.get("_draft") else "allocated"
    return values


START: Final[tuple[Format, ...]] = (
    line("dist_init_begin", "Init torch distributed begin", r"Init torch distributed begin\."),
    line("dist_init_begin", "Init parallel begin", r"Init parallel begin\."),
    line("dist_init_end", "Init torch distributed ends",
         rf"Init torch distributed ends\.(?: elapsed={SECONDS} s,)? {USED}"),
    line("dist_init_end", "Init parallel ends", rf"Init parallel ends\. elapsed={SECONDS} s"),
    line("mem_baseline", "Memory baseline taken", rf"Memory baseline taken\. {USED}"),
    line("weights_begin", "Load weight begin", rf"Load weight begin\. {AVAIL}"),
    line("weights_committed", "Load weight end. Committed",
         rf"Load weight end\. Committed real weights after CUDA graph capture in {SECONDS} s"
         r"(?: \(capture overlap window [-\d.]+ s, startup overlap total [-\d.]+ s\))?"),
    line("weights_end", "Load weight end",
         rf"Load weight end\.(?: elapsed={SECONDS} s,)? type=(?P<model_class>[^,\s]+),(?: dtype=(?P<dtype>[^,]+),)?"
         rf"(?P<_between>(?: (?!avail mem=|dtype=)[^,=\n]*=[^\n]*?,)?) {AVAIL}(?:, {USED}\.?)?", _quantization),
    line("update_weights_begin", "pdate ",
         rf"Update (?:engine )?weights (?:online )?(?:from disk )?begin\. {AVAIL}"),
    line("update_weights_end", "Update weights end", r"Update weights end\."),
    line("kv_cap", "larger than the profiled value",
         rf"max_total_tokens={count('asked')} is larger than the profiled value {count('profiled')}\."
         r"(?: Use the profiled value instead\.)?"),
    line("kv_dtype", "Using KV cache dtype", r"Using KV cache dtype: (?P<dtype>\S+)"),
    line("kv_alloc", "size: ",
         rf"(?P<_cache>(?:[A-Za-z][\w/+-]{{0,30}} ){{0,5}}?)KV Cache "
         rf"(?P<_state>is allocated|VA upper bound)\.(?: dtype: {_DTYPE},)?"
         rf"(?: #tokens: {count('tokens')},)? (?:K size: {gb('k')}, V size: {gb('v')}"
         rf"|KV size: {gb('kv')})\.?",
         lambda groups, values: _alloc({**groups, "_cache": f"{groups['_cache']}KV Cache"}, values)),
    line("kv_post_capture", "Post-capture KV sizing",
         rf"Post-capture KV sizing: max_total_num_tokens={count('tokens')}, free memory={gb('avail')}",
         what="sized"),
    line("kv_post_capture", "Post-capture KV sizing",
         rf"Post-capture KV sizing: (?P<_draft>draft )?KV cache allocated\. dtype: {_DTYPE},"
         rf" #tokens: {count('tokens')}, KV size: {gb('kv')}(?:, {AVAIL})?", _post_capture),
    line("kv_post_capture", "Post-capture KV sizing",
         r"Post-capture KV sizing: decode CUDA graph max_bs=\d+ < max_running_requests=\d+; reserving [^\n]*",
         what="headroom"),
    line("kv_post_capture", "Post-capture KV sizing",
         rf"Post-capture KV sizing: KV-canary per-forward workspace {gb('size')}", what="workspace"),
    line("swa_tokens", "Post-capture KV sizing",
         rf"Post-capture KV sizing: full_layer_tokens={count('full')}, swa_layer_tokens={count('swa')}"),
    line("adjusted", "Post-capture KV sizing",
         rf"Post-capture KV sizing: max_running_requests \d+ -> {count('value')}", name="max_running_requests"),
    line("swa_tokens", "liding window memory pool",
         rf"Use [Ss]liding window memory pool(?: \(all SWA\))?\.(?: full_layer_tokens={count('full')},)?"
         rf" swa_layer_tokens={count('swa')}"),
    line("swa_mem", "SWAKVPool ",
         rf"SWAKVPool (?P<_state>mem usage|VA upper bound): {gb('size')}, swa size: {count('swa')},"
         rf" full size: {count('full')}", _bound),
    line("mamba_alloc", "Mamba Cache is allocated",
         rf"Mamba Cache is allocated\.(?: max_mamba_cache_size: {count('slots')},)?"
         rf" conv_state size: {gb('conv')}, ssm_state size: {gb('ssm')}"
         rf"(?:,? ?intermediate_ssm_state_cache size: {gb('intermediate_ssm')})?"
         rf"(?:,? ?intermediate_conv_window_cache size: {gb('intermediate_conv')})?"),
    line("pool_end", "Memory pool end", rf"Memory pool end\. {AVAIL}"),
    line("host_pool", "host memory",
         rf"Allocating (?:[^\n]{{1,80}}? hierarchical KV host pool: \d+ tokens, )?(?P<size__gb>{NUMBER}) GB host memory"
         r"[^\n]*"),
    line("mm_reserve", "GB of the KV budget", rf"Reserving {gb('size')} of the KV budget[^\n]*"),
    line("symmetric_pool", "symmetric memory pool with",
         rf"Pre-allocating symmetric memory pool with (?P<size__exact>{NUMBER}) GiB"),
    line("lora", "LoRA adapter ",
         r"LoRA adapter (?P<op>loading|unloading) (?P<state>starts|completes): (?P<adapter>[^\n]*)\. " + AVAIL),
    line("capacity", "max_total_num_tokens=",
         rf"max_total_num_tokens={count('max_total_num_tokens')},"
         rf"(?: chunked_prefill_size=(?:None|{count('chunked_prefill_size')}),)?"
         rf" max_prefill_tokens={count('max_prefill_tokens')},"
         rf" max_running_requests={count('max_running_requests')}, context_len={count('context_len')}"
         rf"(?:, available_(?P<device>gpu|cpu)_mem={gb('avail')})?"),
    line("imbalance", "memory capacity is unbalanced",
         r"The memory capacity is unbalanced\.(?: Some GPUs may be occupied by other"
         rf" processes\.)? ?(?:(?:pre_model_load_memory|min_per_gpu_memory)=(?P<least__gib>{NUMBER}),?"
         rf" local_gpu_memory=(?P<most__gib>{NUMBER})"
         rf"(?:,? local_gpu_memory \* 0\.9=-?[\d.e+-]+)?)?"),
)  # fmt: skip
