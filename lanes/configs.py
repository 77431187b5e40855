"""The tiny models as data: one configuration per kind, each of a real architecture and none with weights.

SGLang makes the weights with `--load-format dummy`, seeded, so a model says the same tokens each time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

SPECIAL: Final = ("<unk>", "<s>", "</s>")
VOCABULARY: Final = 512

_LLAMA: Final[Mapping[str, Any]] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": VOCABULARY,
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

CONFIGS: Final[Mapping[str, Mapping[str, Any]]] = {
    # The model of every lane.
    "tiny": _LLAMA,
    # bench_one_batch makes prompts of token ids up to 10,000.
    "wide": {**_LLAMA, "vocab_size": 10_240},
    # Latent attention: one small vector per token and layer instead of keys and values per head.
    "mla": {
        **_LLAMA,
        "architectures": ["DeepseekV2ForCausalLM"],
        "model_type": "deepseek_v2",
        "num_key_value_heads": 4,
        "q_lora_rank": None,
        "kv_lora_rank": 32,
        "qk_nope_head_dim": 16,
        "qk_rope_head_dim": 16,
        "v_head_dim": 16,
        "head_dim": 16,
        "first_k_dense_replace": 2,  # every layer: no expert is ever built
        "moe_layer_freq": 1,
        "n_routed_experts": 4,
        "n_shared_experts": 1,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 64,
        "rope_scaling": {
            "rope_type": "yarn",
            "type": "yarn",
            "factor": 1.0,
            "original_max_position_embeddings": 2048,
            "mscale": 1.0,
            "mscale_all_dim": 1.0,
            "beta_fast": 32,
            "beta_slow": 1,
        },
    },
    # 1.5 GiB of weights: more than a small fraction of a host's memory, and than what moves there by itself: of 384 MiB
    # SGLang saw between 0.00 and 0.38 GiB go.
    "heavy": {**_LLAMA, "intermediate_size": 1 << 21},
    # One layer with a sliding window, one without: a pool for each. Any architecture may say so from 0.5.14 on.
    "swa": {**_LLAMA, "is_hybrid_swa": True, "hybrid_layer_pattern": [1, 0], "sliding_window": 128},
    # A draft that reads the target's hidden states.
    "eagle": {**_LLAMA, "architectures": ["LlamaForCausalLMEagle"], "num_hidden_layers": 1},
    # A draft that stands alone.
    "draft": {**_LLAMA, "num_hidden_layers": 1},
}
"""By name; a model's folder has the name of its kind."""
