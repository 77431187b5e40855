"""Tiny models with a byte-level tokenizer and no weights, and a tiny LoRA adapter."""

from __future__ import annotations

import json
import math
import random
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from lanes.configs import CONFIGS, SPECIAL

LLAMA: Final = CONFIGS["tiny"]
LORA_RANK: Final = 4
ADAPTED: Final = ("self_attn.q_proj", "self_attn.v_proj")


def make_models(directory: Path) -> Path:
    """Write every model, each in a folder named for its kind, and the adapter `lora`; return the tiny Llama's folder.

    `weighted` is the tiny Llama with weights: SGLang loads no adapter upon dummy ones.
    """
    for kind in CONFIGS:
        make_model(directory / kind, kind)
    _write(make_model(directory / "weighted"), {"model.safetensors": _safetensors(_llama_shapes())})
    make_adapter(directory / "lora")
    return directory / "tiny"


def make_model(directory: Path, kind: str = "tiny") -> Path:
    """Write a model without weights of a kind of `CONFIGS` into `directory`; return it."""
    return _write(
        directory,
        {
            "tokenizer.json": _text(_tokenizer()),
            "tokenizer_config.json": _text(_tokenizer_config()),
            "config.json": _text(CONFIGS[kind]),
        },
    )


def make_adapter(directory: Path) -> Path:
    """Write a LoRA adapter of the tiny Llama into `directory`; return it."""
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": "tiny",
        "r": LORA_RANK,
        "lora_alpha": LORA_RANK,
        "target_modules": [module.rpartition(".")[2] for module in ADAPTED],
        "bias": "none",
    }
    weights = _safetensors(_adapter_shapes())
    return _write(directory, {"adapter_config.json": _text(config), "adapter_model.safetensors": weights})


def _write(directory: Path, files: dict[str, bytes]) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        part = directory / f"{name}.part"
        part.write_bytes(content)
        part.replace(directory / name)  # whole or not at all: a server may be reading
    return directory


def _text(content: object) -> bytes:
    return json.dumps(content, indent=1).encode()


def _adapter_shapes() -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {}
    for layer in range(LLAMA["num_hidden_layers"]):
        for module in ADAPTED:
            rows, columns = _projections()[module]
            name = f"base_model.model.model.layers.{layer}.{module}"
            shapes |= {f"{name}.lora_A.weight": (LORA_RANK, columns), f"{name}.lora_B.weight": (rows, LORA_RANK)}
    return shapes


def _llama_shapes() -> dict[str, tuple[int, ...]]:
    table = (LLAMA["vocab_size"], LLAMA["hidden_size"])
    norm = table[1:]
    shapes = {"model.embed_tokens.weight": table, "lm_head.weight": table, "model.norm.weight": norm}
    for layer in range(LLAMA["num_hidden_layers"]):
        weights = _projections() | {"input_layernorm": norm, "post_attention_layernorm": norm}
        shapes |= {f"model.layers.{layer}.{name}.weight": shape for name, shape in weights.items()}
    return shapes


def _projections() -> dict[str, tuple[int, ...]]:
    """The matrices of one layer, (rows, columns) by name."""
    hidden, inner = LLAMA["hidden_size"], LLAMA["intermediate_size"]
    query, cached = (LLAMA[f"num_{kind}_heads"] * LLAMA["head_dim"] for kind in ("attention", "key_value"))
    return {
        "self_attn.q_proj": (query, hidden),
        "self_attn.k_proj": (cached, hidden),
        "self_attn.v_proj": (cached, hidden),
        "self_attn.o_proj": (hidden, query),
        "mlp.gate_proj": (inner, hidden),
        "mlp.up_proj": (inner, hidden),
        "mlp.down_proj": (hidden, inner),
    }


def _safetensors(shapes: Mapping[str, tuple[int, ...]]) -> bytes:
    """Seeded bf16 tensors: the length of a JSON header in 8 bytes, the header, the tensors end to end."""
    header: dict[str, Any] = {}
    tensors = bytearray()
    seeded = random.Random(0)
    for name, shape in shapes.items():
        start = len(tensors)
        for _ in range(math.prod(shape)):
            tensors += struct.pack("<f", seeded.gauss(0, 0.02))[2:]  # a bf16 is the upper half of a float
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [start, len(tensors)]}
    words = json.dumps(header).encode()
    words += b" " * (-len(words) % 8)
    return len(words).to_bytes(8, "little") + words + tensors


def _alphabet() -> list[str]:
    """One printable character per byte, as byte-level BPE spells them: itself where printable, else from U+0100 on."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    spare = iter(range(0x100, 0x200))
    return sorted(chr(byte) if byte in printable else chr(next(spare)) for byte in range(256))


def _tokenizer() -> dict[str, Any]:
    vocabulary = {token: index for index, token in enumerate([*SPECIAL, *_alphabet()])}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": vocabulary[token], "content": token, **flags} for token in SPECIAL],
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": {"type": "BPE", "unk_token": "<unk>", "vocab": vocabulary, "merges": []},
    }


def _tokenizer_config() -> dict[str, Any]:
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "unk_token": "<unk>",
        "bos_token": "<s>",
        "eos_token": "</s>",
        "model_max_length": 2048,
        "chat_template": "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant:",
    }
