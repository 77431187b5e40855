"""Bytes per token where SGLang computes them in the body of its budget function (up to 0.5.6).

    without MLA: kv_heads(attention tp) x head_dim x layers x 2 x element size
    with MLA:    (kv_lora_rank + qk_rope_head_dim) x layers x element size
and what single releases add: the index of sparse attention, the scales of FP4. Only plain functions of SGLang's that
read configuration are asked, none that measures. `verified` tells whether the figure is SGLang's own.
Source: `ModelRunner.profile_max_num_token`, SGLang 0.4.3 to 0.5.6.
"""

from __future__ import annotations

import sys
from typing import Any

from sglang_probe.agent.calls import number

_FP4_BLOCK = 16
"""Values that share one scale."""
_SCALES_WITH_MLA_ONLY = frozenset({"f2dcab1181381b41"})
"""Bodies that count the scales of FP4 with MLA, and not yet without it."""
_EVERY_LAYER_WITHOUT_MLA = frozenset({"84055c22f0bf7fb5", "5f0336c51c84c018"})
"""Bodies that take a draft without MLA for a model of all its layers."""


def bytes_per_token(runner: Any, home: str, body: str | None) -> tuple[int | None, str | None]:
    """Return the bytes a token takes on this rank, or None and what was missing.

    `home` is the module whose function computes it, `body` that function's fingerprint.
    """
    module = sys.modules.get(home)
    try:
        return _cell(runner, module, body), None
    except (AttributeError, TypeError) as error:
        return None, f"{type(error).__name__}: {error}"


def _cell(runner: Any, module: Any, body: str | None) -> int:
    config, element = runner.model_config, _element_size(module, runner.kv_cache_dtype)
    is_fp4 = getattr(module, "is_float4_e2m1fn_x2", None)
    fp4 = is_fp4 is not None and bool(is_fp4(runner.kv_cache_dtype))
    if _uses_mla(runner, module):
        layers = _layers(runner, draft_has_its_own=True)
        rank = config.kv_lora_rank + config.qk_rope_head_dim
        cell = rank * layers * element
        if fp4:
            cell = cell // 2 + rank // _FP4_BLOCK * layers * element
        return int(cell + _sparse_index(config, module, layers))
    layers = _layers(runner, draft_has_its_own=body not in _EVERY_LAYER_WITHOUT_MLA)
    cell = config.get_num_kv_heads(module.get_attention_tp_size()) * config.head_dim * layers * 2 * element
    return int(cell // 2 + cell // _FP4_BLOCK if fp4 and body not in _SCALES_WITH_MLA_ONLY else cell)


def _layers(runner: Any, *, draft_has_its_own: bool) -> int:
    config = runner.model_config
    effective = getattr(runner, "num_effective_layers", None)
    if effective is None:
        return int(config.num_hidden_layers)
    if runner.is_draft_worker and draft_has_its_own:
        return int(getattr(config.hf_config, "num_nextn_predict_layers", effective))
    mamba = _mamba_config(runner)
    return int(effective if mamba is None else len(mamba.full_attention_layer_ids))


def _mamba_config(runner: Any) -> Any:
    if getattr(runner, "is_hybrid_gdn", None) is True and not hasattr(type(runner), "mambaish_config"):
        return runner.model_config.hf_config
    return getattr(runner, "mambaish_config", None)


def _uses_mla(runner: Any, module: Any) -> bool:
    flag = getattr(runner, "use_mla_backend", None)
    if isinstance(flag, bool):
        return flag
    return runner.model_config.attention_arch == module.AttentionArch.MLA and not runner.server_args.disable_mla


def _element_size(module: Any, dtype: Any) -> int:
    return int(module.torch._utils._element_size(dtype))


def _sparse_index(config: Any, module: Any, layers: int) -> int:
    is_sparse = getattr(module, "is_deepseek_nsa", None)
    if is_sparse is None or not hasattr(module, "NSATokenToKVPool") or not is_sparse(config.hf_config):
        return 0
    pool = module.NSATokenToKVPool
    width = module.get_nsa_index_head_dim(config.hf_config)
    per_token = width + width // pool.quant_block_size * 4
    return int(per_token * layers * _element_size(module, pool.index_k_with_scale_buffer_dtype))


def fixed_mamba_gib(runner: Any) -> float | None:
    """Return the mamba deduction that the body itself makes (0.5.2 to 0.5.3.post1), in GiB, else None."""
    config = _mamba_config(runner)
    if config is None or hasattr(type(runner), "handle_max_mamba_cache"):
        return None
    per_request = number(getattr(config, "mamba_cache_per_req", None))
    if per_request is None:
        per_request = number(getattr(getattr(config, "mamba2_cache_params", None), "mamba_cache_per_req", None))
    slots = number(getattr(runner.server_args, "max_mamba_cache_size", None))
    return None if per_request is None or slots is None else slots * per_request / (1 << 30)
