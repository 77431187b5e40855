"""A tiny Llama with a byte-level tokenizer and no weights (SGLang makes them with `--load-format dummy`, seeded)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

SPECIAL: Final = ("<unk>", "<s>", "</s>")
VOCABULARY: Final = 512


def make_model(directory: Path, vocabulary: int = VOCABULARY) -> Path:
    """Write `config.json`, `tokenizer.json` and `tokenizer_config.json` into `directory`; return it."""
    directory.mkdir(parents=True, exist_ok=True)
    files = {
        "tokenizer.json": _tokenizer(),
        "tokenizer_config.json": _tokenizer_config(),
        "config.json": _config(vocabulary),
    }
    for name, content in files.items():
        part = directory / f"{name}.part"
        part.write_text(json.dumps(content, indent=1), encoding="utf-8")
        part.replace(directory / name)  # whole or not at all: a server may be reading
    return directory


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


def _config(vocabulary: int) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": vocabulary,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "max_position_embeddings": 2048,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
        "attention_bias": False,
        "bos_token_id": SPECIAL.index("<s>"),
        "eos_token_id": SPECIAL.index("</s>"),
        "torch_dtype": "bfloat16",
        "initializer_range": 0.02,
    }
