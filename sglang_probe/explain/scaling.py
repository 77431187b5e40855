"""The rules by which a number that was measured is moved to other settings: one idea each, bytes in and bytes out.

They say what SGLang's own code does with the setting where it does something exact, and else what is assumed; `RULES`
has the words of each. Nothing here knows of runs, so findings and plans lean on the same rules.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Final, NamedTuple

from sglang_probe.explain.model import Basis

MIB: Final = 1 << 20
BLOCK: Final = 2 * MIB
"""torch takes memory for tensors of 10 MiB and more in whole blocks of this."""
SLOT_BYTES: Final = 4
"""`req_to_token` is int32."""
LIST_BYTES: Final = 8
"""The list of free pages is int64."""
EXTRA_WIDTH: Final = 4
"""What SGLang adds to the context length of a row of `req_to_token`; with a draft, its tokens too."""
MOST_SIZES: Final = 1 << 16
"""A batch size beyond this is none."""


class Rule(NamedTuple):
    """A rule in words."""

    basis: Basis
    """What a number is that it was applied to."""
    says: str
    title: str
    """In a column: 17 characters at most."""


RULES: Final[dict[str, Rule]] = {
    "formula": Rule("scaled", "the budget's formula of this run's release, with the planned terms", "formula"),
    "default": Rule(
        "scaled",
        "the fraction that SGLang takes when none is given (its server_args): what its reserve for activations and"
        " graphs leaves of the card; the rule gives this run's own fraction, so it is replayed",
        "SGLang's default",
    ),
    "solved": Rule("scaled", "solved for: of all fractions with four decimals the one that just does it", "solved for"),
    "sum": Rule("scaled", "moved by what changed in it", "sum"),
    "weights_tp": Rule(
        "scaled",
        "weights are split over the tensor-parallel ranks: x old tp / new tp. Norms, and what a model does not split,"
        " are on every rank whole: assumed to be small",
        "weights per rank",
    ),
    "quantization": Rule(
        "scaled",
        "weights x new / old bytes of a parameter. Embeddings, norms and the scales of the blocks are left out, so the"
        " real ones are somewhat larger",
        "quantization",
    ),
    "token_tp": Rule(
        "scaled",
        "the KV heads are split over the ranks: bytes of a token x old tp / new tp, but a rank has one head at least;"
        " how many the model has was not recorded, so assumed is that there are enough (--kv-heads N says)",
        "KV heads per rank",
    ),
    "token_heads": Rule(
        "scaled", "the KV heads are split over the ranks, and a rank has one at least", "KV heads per rank"
    ),
    "token_mla": Rule("measured", "MLA keeps the same latent cache on every rank, whatever the tp", "MLA"),
    "token_unknown": Rule(
        "assumed",
        "whether a token shrinks with tp is not known: nothing recorded says whether the model's KV cache is split over"
        " the ranks by heads, or is on every rank whole (MLA). The smaller number of tokens is planned; --kv-heads N,"
        " or --like PATH with a run whose pools were built, settles it",
        "may not shrink",
    ),
    "token_mean": Rule(
        "scaled",
        "rest / tokens of this run: pools of several kinds share the budget, none says the bytes of a token",
        "budget / tokens",
    ),
    "token_model": Rule(
        "assumed",
        "no pool is printed: that of the one model of its class whose weights fit",
        "the model's shape",
    ),
    "token_dtype": Rule("scaled", "bytes of a token x the ratio of the two types' element sizes", "KV type"),
    "pool": Rule(
        "scaled",
        "the pool's tensors are (tokens + a page) x bytes of a token, each in whole blocks of 2 MiB (torch's), and"
        " 8 B a page for the allocator's list; what else was measured beside them stays",
        "KV pools",
    ),
    "pool_plain": Rule(
        "scaled",
        "no pool was built in this run: (tokens + a page) x bytes of a token, and 8 B a page for the allocator's list."
        " torch takes memory in blocks of 2 MiB, so the real ones are a little larger",
        "estimate",
    ),
    "requests": Rule(
        "scaled",
        "SGLang's number of requests: the given one, else 512 for each context length of tokens, from 2,048 to 4,096;"
        " from 0.5.11 on no more than half the tokens",
        "request limit",
    ),
    "request_pool": Rule(
        "scaled", "a row of int32 a request, as wide as the context length and a little more", "row a request"
    ),
    "graphs": Rule(
        "scaled",
        "graphs x the number of batch sizes that are captured; kernels that load at the first capture are in it, so a"
        " larger plan is on the high side",
        "batch sizes",
    ),
    "given_back": Rule(
        "scaled",
        "it is taken before the pre-load memory is read: giving c back adds c x fraction to the rest",
        "given back",
    ),
    "alone": Rule("scaled", "a world of one rank makes no NCCL communicator and no custom all-reduce", "one rank"),
    "mamba": Rule(
        "scaled",
        "the recurrent state takes the same share of the room as in this run, to within one request's state",
        "share of the room",
    ),
    "share": Rule(
        "scaled", "the pool has the same share of what memory alone would allow as in this run", "share of the room"
    ),
    "at_once": Rule("scaled", "tokens // context length, and no more than SGLang makes room for", "tokens / context"),
    "activations": Rule(
        "assumed",
        "activations are what a forward pass takes while requests are served, most in a large prefill. A start does not"
        " measure them; SGLang's own rule of thumb reserves max(chunked_prefill_size, 2048) x 1.5 MiB",
        "rule of thumb",
    ),
    "as_measured": Rule(
        "assumed", "taken as it was measured: how it moves with what differs is not known", "as measured"
    ),
    "like": Rule("given", "measured in the run given by --like", "--like"),
}

_SIZES: Final[dict[str, Fraction]] = {
    **dict.fromkeys(("float32", "fp32"), Fraction(4)),
    **dict.fromkeys(("bfloat16", "bf16", "float16", "half", "fp16"), Fraction(2)),
    **dict.fromkeys(("fp8_e5m2", "fp8_e4m3", "float8_e5m2", "float8_e4m3fn", "uint8", "int8"), Fraction(1)),
    **dict.fromkeys(("float8_e5m2fnuz", "float8_e4m3fnuz"), Fraction(1)),
    "fp4_e2m1": Fraction(9, 16),  # half a byte, and one byte of scale for sixteen
}
_PARAMETERS: Final[dict[str, Fraction]] = {
    **dict.fromkeys(("fp8", "w8a8_fp8", "w8a8_int8", "modelopt", "modelopt_fp8", "blockwise_int8"), Fraction(1)),
    **dict.fromkeys(("awq", "awq_marlin", "gptq", "gptq_marlin", "bitsandbytes"), Fraction(1, 2)),
    **dict.fromkeys(("modelopt_fp4", "nvfp4"), Fraction(9, 16)),
    "mxfp4": Fraction(17, 32),
}
KV_DTYPES: Final = ("auto", "bfloat16", "fp8_e5m2", "fp8_e4m3", "fp4_e2m1")
QUANTIZATIONS: Final = tuple(_PARAMETERS)


def element_bytes(dtype: str | None) -> Fraction | None:
    """Return the bytes of one element of a type, by SGLang's or torch's name; None where it is not known."""
    return None if dtype is None else _SIZES.get(dtype.removeprefix("torch."))


def parameter_bytes(quantization: str | None, dtype: str | None) -> Fraction | None:
    """Return the bytes of one quantized parameter, or of one of the model's type where it is not quantized."""
    return element_bytes(dtype) if quantization is None else _PARAMETERS.get(quantization)


def scaled(amount: int, by: Fraction) -> int:
    """Return an amount times a ratio, cut to a whole number: 32768 x 1/2 = 16384."""
    return amount * by.numerator // by.denominator


def split(old_tp: int, new_tp: int, heads: int | None = None) -> Fraction:
    """Return the ratio of a rank's share of the KV heads (or of weights): 8 heads, tp 4 -> 16: from 2 to 1, 1/2."""
    if heads is None:
        return Fraction(old_tp, new_tp)
    return Fraction(max(1, heads // new_tp), max(1, heads // old_tp))


def blocks(amount: int, tensors: int = 1) -> int:
    """Return what the device loses by `tensors` equal tensors of `amount` bytes together: 33 MiB in 2 -> 36 MiB."""
    each = -(-amount // tensors)
    return tensors * -(-each // BLOCK) * BLOCK


def pool_bytes(tokens: int, page: int, token: Fraction) -> int:
    """Return the bytes of a KV pool's tensors: SGLang adds a page of padding.

    Worked example: (3,979,547 + 1) x 32768 B = 130401828864, as recorded.
    """
    return scaled(tokens + page, token)


def list_bytes(tokens: int, page: int) -> int:
    """Return the bytes of the list of free pages."""
    return tokens // page * LIST_BYTES


def request_slots(tokens: int, context: int, given: int | None, dp: int = 1, *, halved: bool = True) -> int:
    """Return how many requests SGLang makes room for: 3,979,547 tokens of 8,192 -> 248,721 wanted, 4,096 at most.

    Source: SGLang's `_resolve_max_num_reqs`; `halved` is from 0.5.11 on.
    """
    wanted = given // dp if given is not None else max(min(tokens * 512 // context, 4096), 2048)
    return min(wanted, tokens // 2) if halved else wanted


def capture_sizes(most: int, *, draft: bool = False) -> tuple[int, ...]:
    """Return the batch sizes that SGLang 0.5.9 and later captures up to `most`: 8 -> 1, 2, 4, 8."""
    if not 0 < most <= MOST_SIZES:
        return ()
    if draft:
        steps = [*range(1, 9), *range(10, 33, 2), *range(40, 65, 4), *range(72, 257, 8), *range(272, most + 1, 16)]
    else:
        steps = [1, 2, 4, 8, 12, *range(16, 257, 8), *range(272, 512, 16), *range(512, most + 1, 32)]
    return tuple(sorted({*(size for size in steps if size <= most), most}))


def graph_bytes(cost: int, old: int, new: int) -> int:
    """Return what graphs of another number of sizes take.

    Worked example, the recorded H200: 62 MiB of 4 sizes up to 8: for 12 sizes up to 64, 62 x 3 = 186 MiB; 136 were
    measured, for kernels that load at the first capture are paid once.
    """
    return scaled(cost, Fraction(new, old))
