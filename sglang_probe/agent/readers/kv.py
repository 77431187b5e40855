"""`kv.profile`: every term of the budget, recomputed in SGLang's own order of float operations.

    slack = pre-load x (1 - mem_fraction_static)
    rest  = available - slack - deductions            (GiB, floats; the mamba deduction is SGLang's own)
    0.5.9:  tokens = int(rest x 2^30) // bytes_per_token
    0.5.14: bytes  = int(rest x 2^30), and a rest <= 0 raises
Source: SGLang model_runner_kv_cache_mixin.py, 0.5.9 `profile_max_num_token`, 0.5.14 `_profile_available_bytes`.

`available` is observed, never measured: SGLang's measuring function empties torch's cache and runs a collective.
"""

from __future__ import annotations

import re

from sglang_probe.agent.calls import Attributes, Call, Reader, gib_to_bytes, integer, number

GIB = 1 << 30

_PRINTED_MINIMUM = re.compile(r"minimum viable = [^=]*= (-?\d+\.\d+)")
_FORMULA = {
    "tokens": "tokens = int((available - pre_load x (1 - mem_fraction_static) - deductions) x 2^30) // bytes_per_token",
    "bytes": "bytes = int((available - pre_load x (1 - mem_fraction_static) - deductions) x 2^30)",
}


def _budget(call: Call, unit: str) -> Attributes:
    notes = call.notes
    available, fraction = notes.get("available"), number(getattr(call.instance, "mem_fraction_static", None))
    pre_load = number(next(iter(call.arguments.values()), None))  # total_gpu_memory, pre_model_load_memory
    rest = _rest(available, pre_load, fraction, notes)
    deductions = _deductions(notes)
    minimum, why = minimum_viable_fraction(available, pre_load, deductions)
    terms: Attributes = {
        "available_bytes": gib_to_bytes(available),
        "available_gib": available,
        "available_local_bytes": notes.get("available_local"),
        "pre_load_bytes": gib_to_bytes(pre_load),
        "pre_load_gib": pre_load,
        "mem_fraction_static": fraction,
        "static_budget_bytes": None if pre_load is None or fraction is None else gib_to_bytes(pre_load * fraction),
        "slack_bytes": None if pre_load is None or fraction is None else gib_to_bytes(pre_load * (1 - fraction)),
        "deductions": deductions,
        "rest_bytes": None if rest is None else int(rest * GIB),
        "bytes_per_token": notes.get("bytes_per_token"),
        "result": integer(call.result),
        "result_unit": unit,
        "formula": _FORMULA[unit],
        "minimum_viable_fraction": minimum,
        "minimum_viable_fraction_reason": why,
        "minimum_viable_fraction_printed": _printed_minimum(call.error),
    }
    terms["verified"], terms["verified_reason"] = _verify(call, terms, rest)
    return terms


def _rest(available: float | None, pre_load: float | None, fraction: float | None, notes: Attributes) -> float | None:
    if "rest_after_mamba" in notes:
        after: float = notes["rest_after_mamba"]
        return after
    if available is None or pre_load is None or fraction is None:
        return None
    return available - pre_load * (1 - fraction)


def _deductions(notes: Attributes) -> dict[str, int]:
    before, after = notes.get("rest_before_mamba"), notes.get("rest_after_mamba")
    taken = gib_to_bytes(before - after) if before is not None and after is not None else None
    return {} if taken is None else {"mamba": taken}


def minimum_viable_fraction(
    available: float | None, pre_load: float | None, deductions: dict[str, int]
) -> tuple[float | None, str | None]:
    """Return 1 - (available - deductions) / pre-load and None, or None and why there is no such number.

    The story: 1 - 21.697 / 93.999 = 0.7692.
    """
    if not available or not pre_load:
        return None, "available or pre-load memory is not known"
    if deductions:
        return None, f"the deduction ({', '.join(deductions)}) depends on the fraction"
    return 1 - available / pre_load, None


def _verify(call: Call, terms: Attributes, rest: float | None) -> tuple[bool | None, str | None]:
    if rest is None:
        missing = [name for name in ("available_gib", "pre_load_gib", "mem_fraction_static") if terms[name] is None]
        return None, f"not captured: {', '.join(missing)}"
    if call.error is not None:
        return _verify_raise(terms, rest)
    result = terms["result"]
    if result is None:
        return None, "SGLang's function returned no number"
    expected = int(rest * GIB)
    if terms["result_unit"] == "tokens":
        cell = terms["bytes_per_token"]
        if not cell:
            return None, "not captured: bytes_per_token"
        expected //= cell
    if expected == result:
        return True, None
    unit = terms["result_unit"]
    return False, f"the terms give {expected} {unit}, SGLang returned {result}: its formula has another term"


def _verify_raise(terms: Attributes, rest: float) -> tuple[bool | None, str | None]:
    printed, minimum = terms["minimum_viable_fraction_printed"], terms["minimum_viable_fraction"]
    if printed is None or minimum is None:
        return None, "SGLang raised instead of returning a number to compare with"
    if rest <= 0 and f"{minimum:.4f}" == f"{printed:.4f}":
        return True, None
    return False, f"SGLang's message says a minimum of {printed}, the terms give {minimum:.4f}"


def _printed_minimum(error: BaseException | None) -> float | None:
    match = _PRINTED_MINIMUM.search(str(error)) if error is not None else None
    return float(match[1]) if match else None


def _end_tokens(call: Call) -> Attributes:
    return _share(call, _budget(call, "tokens"))


def _end_bytes(call: Call) -> Attributes:
    return _share(call, _budget(call, "bytes"))


def _share(call: Call, terms: Attributes) -> Attributes:
    around = call.enclosing("kv.pool")
    if around is not None:
        around.notes["profile"] = terms
    return terms


def _observe_available(call: Call) -> Attributes:
    around = call.parent
    if around is not None and around.target.role == "kv.profile":
        around.notes["available"] = number(call.result)
        around.notes["available_local"] = call.agent.device_free()
    return {}


def _observe_cell(call: Call) -> Attributes:
    around = call.parent
    if around is not None and around.target.role == "kv.profile":
        around.notes["bytes_per_token"] = integer(call.result)
    return {}


def _observe_mamba(call: Call) -> Attributes:
    around = call.parent
    if around is not None and around.target.role == "kv.profile" and number(call.result) is not None:
        around.notes["rest_before_mamba"] = number(call.arguments.get("total_rest_memory"))
        around.notes["rest_after_mamba"] = number(call.result)
    return {}


def _observe_configurator(call: Call) -> Attributes:
    around = call.parent
    if around is not None and around.target.role == "kv.pool":
        around.notes["bytes_per_token"] = integer(getattr(call.result, "_cell_size", None))
    return {}


PROFILE_TOKENS = Reader(end=_end_tokens)
PROFILE_BYTES = Reader(end=_end_bytes)
AVAILABLE = Reader(end=_observe_available)
CELL_SIZE = Reader(end=_observe_cell)
MAMBA = Reader(end=_observe_mamba)
CONFIGURATOR = Reader(end=_observe_configurator)
