"""The `mem_fraction_static` that SGLang takes when none is given: what a reserve leaves of the card.

Source: SGLang's `_handle_gpu_memory_settings` from 0.5.9 on (`memory_hook` in 0.5.23), in MiB:

    reserve = 512 + max(chunked_prefill_size, 2048) x 1.5 + cuda_graph_max_bs x 2 + tp x pp / 8 x 1024 + ...
    reserve = at least 10 x 1024 on a card of more than 60 x 1024
    mem_fraction_static = round((card - reserve) / card, 3)

It has had variants, and models that see images change it after. So a variant counts only where it gives a run's own
fraction in force.
"""

from __future__ import annotations

from typing import Final, NamedTuple

SINCE: Final = "0.5.9"
"""The first release of which the rule was read."""
BIG_CARD: Final = 60 * 1024
LEAST_ON_BIG: Final = 10 * 1024
LEAST_TOKENS: Final = 2048
MIB_PER_TOKEN: Final = 1.5


class Knobs(NamedTuple):
    """What the reserve hangs on."""

    card_mib: float
    """NVML's total of the smallest card."""
    prefill_tokens: int
    """chunked_prefill_size, or max_prefill_tokens where that is off."""
    max_bs: int
    """Largest batch size of the decode graphs."""
    tp: int = 1
    pp: int = 1
    dp: int = 1
    dp_attention: bool = False
    prefill_graphs: int = 0
    """How many sizes of prefill (piecewise) graphs."""
    speculative: str | None = None


class Variant(NamedTuple):
    """One form of the rule."""

    prefill: float = 0
    """MiB for each size of prefill graph."""
    prefill_flat: float = 0
    """MiB for prefill graphs in all (MLA)."""
    draft: bool = False
    """Whether a draft adds to it."""
    after_capture: float | None = None
    """The whole constant where the pool is sized after the capture of graphs."""


VARIANTS: Final = (
    Variant(prefill=8, draft=True),  # 0.5.9
    Variant(prefill=8),  # from 0.5.14
    Variant(prefill_flat=1536),
    Variant(),
    Variant(after_capture=512),  # from 0.5.16
    Variant(after_capture=1536),  # 0.5.23
)


def activations_mib(prefill_tokens: int) -> float:
    """Return SGLang's reserve for the activations of a large prefill: 8,192 tokens -> 12,288 MiB."""
    return max(prefill_tokens, LEAST_TOKENS) * MIB_PER_TOKEN


def reserve_mib(knobs: Knobs, variant: Variant) -> float:
    """Return the reserve.

    Worked example, the recorded H200: 512 + 8192 x 1.5 + 8 x 2 + 2 x 1 / 8 x 1024 = 13072 MiB.
    """
    parallel = knobs.tp * knobs.pp / 8 * 1024
    if variant.after_capture is not None:
        return variant.after_capture + parallel
    reserve = 512 + activations_mib(knobs.prefill_tokens) + knobs.max_bs * 2 + parallel
    if knobs.dp_attention:
        reserve += knobs.max_bs * knobs.dp * (4.5 if knobs.max_bs > 300 else 3)
    reserve += knobs.prefill_graphs * variant.prefill + (variant.prefill_flat if knobs.prefill_graphs else 0)
    if knobs.card_mib > BIG_CARD:
        reserve = max(reserve, LEAST_ON_BIG)
    return reserve + (_draft_mib(knobs.speculative) if variant.draft else 0)


def _draft_mib(algorithm: str | None) -> float:
    return {None: 0, "NGRAM": 0, "STANDALONE": 6 * 1024}.get(algorithm, 2 * 1024)


def default_fraction(knobs: Knobs, variant: Variant) -> float:
    """Return the fraction: (143771 - 13072) / 143771 = 0.909."""
    return round((knobs.card_mib - reserve_mib(knobs, variant)) / knobs.card_mib, 3)


def variant_of(knobs: Knobs, in_force: float) -> Variant | None:
    """Return the first variant that gives the fraction in force; None: none does, and the rule says nothing here."""
    return next((one for one in VARIANTS if default_fraction(knobs, one) == in_force), None)
