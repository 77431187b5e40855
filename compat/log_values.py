"""A template -> a line, with a value in every slot; and what a reader must have read from it."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from compat.log_templates import Slot, Template
from sglang_probe.collect.logs.exceptions import TRACEBACK

UNIT: Final = re.compile(r" ?(GiB|MiB|GB|MB)(?![\w/])")
_BY_EXPRESSION: Final[tuple[tuple[str, str], ...]] = (
    (r"graph_backend\[", "npu graph"),
    (r"capture_name|role", "target decode"),
    (r"capture_bs|capture_num_tokens|widths", "[1, 2, 4, 8]"),
    (r"__name__", "LlamaForCausalLM"),
    (r"quant_str", "quant=fp8, fmt=e4m3, bits=8"),
    (r"dtype", "torch.bfloat16"),
    (r"lora_ref", "LoRARef(lora_id='0a', lora_name='one', lora_path='/models/one')"),
    (r"lora_name|lora_path", "/models/one"),
    (r"server_args_for_logging|resolved_dict", "{'model_path': '/models/one', 'tp_size': 2}"),
    (r"^_?server_args$", "ServerArgs(model_path='/models/one', tp_size=2, mem_fraction_static=0.88)"),
    (r"backend|layout|pool_label|allocation_label|pool_name|label|transport|phase|device_type", "full"),
    (r"num_mc_blocks|pull_enabled|unified|bf16|fp8|fold", "True"),
    (r"traceback|get_exception", f'{TRACEBACK}\n  File "a.py", line 1, in f\nValueError: none'),
    (r"^e$|exc|err|message|reason", "none of these"),
    (r"ncclGetVersion|__version__", "2.28.9"),
    (r"exit_?code|returncode", "-9"),
    (r"swa_full_tokens_ratio", "0.8"),
    (r"mem_fraction", "0.88"),
    (r"local_gpu_memory|min_per_gpu_memory|pre_model_load_memory|self\.mem_usage", "71.2568359375"),
    (r"SUPPORTED|supported", "[2, 4, 6, 8]"),
    (r"rid\b", "4f1c"),
)
"""What an expression without a format prints; any other prints a whole number of its own."""
LABELS: Final[tuple[tuple[str, str], ...]] = (
    (r"avail(?:able_[gc]pu)?[ _]mem=|free memory=", "avail"), (r"mem usage=|mem usage: |VA upper bound: ", "mem_usage"),
    (r"elapsed=|Time elapsed: |CUDA graph capture in ", "elapsed_s"), (r"#tokens: ", "tokens"), (r", K size: ", "k"),
    (r", V size: ", "v"), (r"KV size: ", "kv"), (r"full_layer_tokens=|full size: ", "full"),
    (r"swa_layer_tokens=|swa size: ", "swa"), (r"max_mamba_cache_size: ", "slots"), (r"conv_state size: ", "conv"),
    (r" ssm_state size: ", "ssm"), (r"max_total_num_tokens=", "max_total_num_tokens"),
    (r"#retracted_reqs: ", "retracted"),
    (r"intermediate_ssm_state_cache size: ", "intermediate_ssm"), (r"chunked_prefill_size=", "chunked_prefill_size"),
    (r"intermediate_conv_window_cache size: ", "intermediate_conv"), (r"max_prefill_tokens=", "max_prefill_tokens"),
    (r"max_running_requests=", "max_running_requests"), (r"context_len=", "context_len"),
    (r"^Registering ", "addresses"), (r"^Registered ", "addresses"), (r"symmetric_memory = ", "symmetric"),
    (r"local_buffer = ", "local"),
    (r"max_total_tokens=", "asked"), (r"the profiled value ", "profiled"), (r"#new_tokens_gained: ", "gained"),
    (r"#aborted_retracted_reqs: ", "aborted"), (r"#new_token_ratio: ", "ratio_before"), (r"step[= ]", "step"),
)  # fmt: skip
"""What stands before a figure names it: written from SGLang's words, not from the reader's patterns."""


class Line(NamedTuple):
    """A line as a server would print it."""

    text: str
    figures: tuple[str, ...]
    """The figures of memory in it, as printed, in their order."""
    labelled: tuple[tuple[str, str], ...]
    """Names of values, and what was printed for them."""


def line_of(template: Template) -> Line:
    """Return the line; equal templates make equal lines."""
    text, figures, labelled = "", [], []
    for place, part in enumerate(template):
        if isinstance(part, str):
            text += part
            continue
        value = _value(part, place)
        after = template[place + 1] if place + 1 < len(template) else ""
        if isinstance(after, str) and UNIT.match(after) and re.fullmatch(r"-?[\d.]+", value):
            figures.append(value)
        name = next((name for label, name in LABELS if re.search(f"(?:{label})$", text)), None)
        if name is not None:
            labelled.append((name, value))
        text += value
    return Line(text.strip(), tuple(figures), tuple(labelled))


def _value(slot: Slot, place: int) -> str:
    seed = 1 + sum(ord(letter) for letter in slot.expression) % 89 + 7 * place
    if "mem_fraction" in slot.expression:
        return "0.881"[: 2 + _decimals(slot.spec, 2)]
    if "f" in slot.spec:
        return f"{seed + seed / 97:.{_decimals(slot.spec, 6)}f}"
    if "x" in slot.spec:
        return f"{seed:x}"
    if "d" not in slot.spec:
        for pattern, value in _BY_EXPRESSION:
            if re.search(pattern, slot.expression):
                return value
    return str(seed * 131)


def _decimals(spec: str, otherwise: int) -> int:
    digits = re.search(r"\.(\d+)f", spec)
    return int(digits[1]) if digits else otherwise
