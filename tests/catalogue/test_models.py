"""What a token takes of the KV cache, told from a model's class and the size of its weights."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglang_probe.catalogue.models import PLAIN, QUANTIZED, SHAPES, WIDTHS, bytes_per_token

GIB = 1 << 30


@pytest.mark.parametrize(("model_class", "gib", "tp", "dtype", "expected", "model"), [
    ("LlamaForCausalLM", 756.0, 16, "auto", 126 * 1 * 128 * 2 * 2, "Llama-3.1-405B"),
    ("DeepseekV3ForCausalLM", 8 * 90.07, 8, "bfloat16", 61 * (512 + 64) * 2, "DeepSeek-V3"),
    ("DeepseekV3ForCausalLM", 8 * 166.59, 1, "auto", 61 * (512 + 64) * 2, "DeepSeek-V3 or Kimi-K2"),
    ("DeepseekV3ForCausalLM", 29.9, 1, "auto", 27 * (512 + 64) * 2, "Moonlight-16B"),
    ("LlamaForCausalLM", 2 * 65.9, 2, "fp8_e5m2", 80 * 4 * 128 * 2, "Llama-2-70B or Llama-3-70B"),
    ("Gemma2ForCausalLM", 50.7, 1, "torch.bfloat16", 46 * 16 * 128 * 2 * 2, "Gemma-2-27B"),
    ("Gemma3ForConditionalGeneration", 51.1, 2, "auto", 62 * 8 * 128 * 2 * 2, "Gemma-3-27B"),
    ("Glm4MoeForCausalLM", 2 * 99.6, 2, "auto", 46 * 4 * 128 * 2 * 2, "GLM-4.5-Air"),
    ("MiniMaxM2ForCausalLM", 4 * 53.9, 4, "auto", 62 * 2 * 128 * 2 * 2, "MiniMax-M2.5"),
])  # fmt: skip
def test_a_class_and_its_weights_tell_the_bytes_of_a_token(
    model_class: str, gib: float, tp: int, dtype: str, expected: int, model: str
) -> None:
    guess = bytes_per_token(model_class, round(gib * GIB), tp, dtype)

    assert guess is not None
    assert (expected, model, "assumed") == (guess.bytes, guess.of_model, guess.basis)


def test_two_models_of_one_size_are_told_apart_by_their_pool_and_not_without_it() -> None:
    weights, pool, tokens = 8 * round(16.99 * GIB), round(47.19 * GIB), 1218251
    told = bytes_per_token("Qwen2ForCausalLM", weights, 8, least=0.9 * pool / tokens, most=pool / tokens)

    assert bytes_per_token("Qwen2ForCausalLM", weights, 8) is None
    assert told is not None
    assert (80 * 1 * 128 * 2 * 2, "Qwen2-72B") == (told.bytes, told.of_model)
    assert "80 layers x 1 KV head x 128 x 2 x 2 B" == told.says


@pytest.mark.parametrize(("model_class", "weights", "tp", "dtype"), [
    ("NobodyKnowsForCausalLM", 8 * GIB, 1, "auto"),
    ("Qwen2ForCausalLM", None, 1, "auto"),
    ("Qwen2ForCausalLM", 0, 1, "auto"),
    ("Qwen2ForCausalLM", 14 * GIB, 0, "auto"),
    ("Qwen2ForCausalLM", 14 * GIB, 1, "fp4_e2m1"),
    ("DeepseekV3ForCausalLM", 3 * GIB, 1, "auto"),
])  # fmt: skip
def test_what_does_not_fit_a_listed_shape_is_unknown(
    model_class: str, weights: int | None, tp: int, dtype: str
) -> None:
    assert bytes_per_token(model_class, weights, tp, dtype) is None


@given(st.sampled_from(sorted(SHAPES)), st.integers(1, 1 << 42), st.integers(1, 64))
def test_a_guess_is_one_of_the_listed_sizes_and_says_how_it_is_computed(name: str, weights: int, tp: int) -> None:
    guess = bytes_per_token(name, weights, tp)

    if guess is not None:
        assert guess.bytes in {shape.bytes_per_token(tp, 2) for shape in SHAPES[name]}
        assert set(guess.of_model.split(" or ")) <= {shape.model for shape in SHAPES[name]}


def weights(name: str, bits: int) -> tuple[str, int]:
    """Return a listed model's class and what its weights take with parameters of so many bits."""
    ((model_class, shape),) = [(known, one) for known, some in SHAPES.items() for one in some if name == one.model]
    return model_class, round(sum(WIDTHS[bits]) / 2 * shape.billions * 1e9)


@pytest.mark.parametrize("bits", QUANTIZED)
@pytest.mark.parametrize("name", ["Llama-3.2-3B", "Qwen3-8B", "DBRX"])
def test_a_model_is_told_by_8_or_4_bits_only_where_its_weights_may_have_them(name: str, bits: int) -> None:
    model_class, size = weights(name, bits)
    told = bytes_per_token(model_class, size, 1, bits=[bits])

    assert told is not None
    assert name in told.of_model.split(" or ")
    for known in (None, PLAIN):
        guess = bytes_per_token(model_class, size, 1, bits=known)
        assert guess is None or name not in guess.of_model.split(" or ")


@pytest.mark.parametrize("bits", [16, 8])
def test_a_model_that_is_published_in_8_bits_is_told_by_them_and_by_16(bits: int) -> None:
    model_class, size = weights("DeepSeek-V3", bits)
    guess = bytes_per_token(model_class, size, 1)

    assert guess is not None
    assert "DeepSeek-V3" in guess.of_model.split(" or ")
    assert 8 != bits or bytes_per_token(model_class, size, 1, bits=PLAIN) is None


def test_an_unquantized_llama_that_is_not_listed_has_no_name() -> None:
    assert bytes_per_token("LlamaForCausalLM", round(1.72 * GIB), 1) is None
    assert bytes_per_token("LlamaForCausalLM", round(1.72 * GIB), 1, bits=PLAIN) is None


def test_without_mla_no_latent_vector_is_kept() -> None:
    model_class, size = weights("DeepSeek-V2", 16)

    assert bytes_per_token(model_class, size, 8) is not None
    assert bytes_per_token(model_class, size, 8, mla=False) is None


def test_a_model_stands_in_one_class_once() -> None:
    names = [shape.model for some in SHAPES.values() for shape in some]
    assert sorted(set(names)) == sorted(names)
