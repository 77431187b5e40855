"""The KV budget's formula, forwards (fraction -> tokens) and backwards (tokens -> fraction).

    slack = pre-load x (1 - mem_fraction_static), or SGLang's floor on it
    rest  = available - slack - deductions
    tokens = rest // bytes per token
Source: SGLang's `profile_max_num_token` and `_profile_available_bytes`, by release in `catalogue.formulas`.
The floats are GiB, in SGLang's own order of operations: another order rounds differently.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple, TypeGuard

from sglang_probe.catalogue.formulas import WHAT, Formula
from sglang_probe.figures import GIB
from sglang_probe.timeline.arithmetic import floor_binds
from sglang_probe.timeline.model import Budget

_BY_TEXT: Final[dict[str, Formula]] = {text: name for name, text in reversed(WHAT.items())}
"""Events name the formula by its text; two formulas of one text compute alike."""
INLINE: Final[Formula] = "tokens-inline"


class Terms(NamedTuple):
    """The terms of one rank's budget, in bytes.

    Worked example, in GiB: available 21.697, pre-load 93.999, fraction 0.55: rest = 21.697 - 42.300 = -20.603; the
    fraction at which rest is 0 is 1 - 21.697 / 93.999 = 0.7692; the one at which it is 4 GiB, 0.8117.
    """

    available: int
    pre_load: int
    fraction: float
    deductions: tuple[int, ...] = ()
    """In SGLang's order: multimodal, mamba, whatever else."""
    floor: int | None = None
    """SGLang's least slack, where it has one."""
    formula: Formula = "bytes"

    @property
    def slack_gib(self) -> float:
        """What the budget leaves to activations and graphs."""
        own = self.pre_load / GIB * (1 - self.fraction)
        return own if self.floor is None else max(own, self.floor / GIB)

    @property
    def rest_gib(self) -> float:
        """What is left for the KV cache; negative: nothing."""
        rest = self.available / GIB - self.slack_gib
        for deduction in self.deductions:
            rest -= deduction / GIB
        return rest

    @property
    def rest_bytes(self) -> int:
        """The same in bytes, cut as SGLang cuts it."""
        return int(self.rest_gib * GIB)

    def tokens(self, token: int) -> int:
        """Return the tokens that the rest holds, `token` bytes each; <= 0: no KV cache."""
        return int(self.rest_gib * GIB // token) if self.formula == INLINE else self.rest_bytes // token

    def fraction_for(self, wanted: int = 0) -> float:
        """Return the fraction that leaves `wanted` bytes for the KV cache: with 0 the minimum viable one. Negative: the
        one that is so much short.

        Above 1: no fraction does. SGLang's floor on the slack is left out: where it binds, no fraction decides.
        """
        return 1 - (self.available - sum(self.deductions) - wanted) / self.pre_load


def formula_of(budget: Budget) -> Formula | None:
    """Return the formula of the release that made a budget; None where the events name none, or one not known."""
    return _BY_TEXT.get(budget.formula or "")


def terms_of(budget: Budget) -> Terms | None:
    """Return a budget's terms; None where one of them is unknown."""
    if budget.available_bytes is None or not budget.pre_load_bytes or not is_fraction(budget.mem_fraction_static):
        return None
    return Terms(
        available=budget.available_bytes,
        pre_load=budget.pre_load_bytes,
        fraction=budget.mem_fraction_static,
        deductions=tuple(deducted(budget.deductions)),
        floor=budget.slack_bytes if floor_binds(budget) else None,
        formula=formula_of(budget) or ("tokens" if budget.result_unit == "tokens" else "bytes"),
    )


def is_fraction(value: float | None) -> TypeGuard[float]:
    """Say whether a value is a fraction that SGLang can have used: a file may hold anything."""
    return value is not None and 0 <= value <= 1


def deducted(deductions: Mapping[str, int]) -> list[int]:
    """Return the deductions in SGLang's order: mamba last, since its size hangs on the rest."""
    return [deductions[name] for name in sorted(deductions, key=lambda name: name == "mamba")]
