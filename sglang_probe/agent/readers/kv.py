"""`kv.profile`: every term of the budget, recomputed in SGLang's own order of float operations.

    slack = pre-load x (1 - mem_fraction_static), or SGLang's floor on it
    rest  = available - slack - multimodal - mamba    (GiB, floats; the mamba deduction is SGLang's own)
    up to 0.5.6:    tokens = int(rest x 2^30 // bytes_per_token)
    0.5.7 - 0.5.10: tokens = int(rest x 2^30) // bytes_per_token
    from 0.5.11:    bytes  = int(rest x 2^30), and from 0.5.14 a rest <= 0 raises
Source: SGLang's `profile_max_num_token` and `_profile_available_bytes`; the bodies are listed in `catalogue.formulas`.
`verified` is true only for a body that is listed there and whose result the terms reproduce to the token or byte.
"""

from __future__ import annotations

import re

from sglang_probe.agent.calls import Attributes, Call, Reader, gib_to_bytes, integer, number
from sglang_probe.agent.readers.kv_inline import bytes_per_token, fixed_mamba_gib
from sglang_probe.agent.readers.kv_terms import GIB, fraction_in_force, slack_of
from sglang_probe.catalogue.formulas import FORMULAS, WHAT, Formula
from sglang_probe.events.fingerprint import fingerprint

_PRINTED_MINIMUM = re.compile(r"minimum viable = [^=]*= (-?\d+\.\d+)")
_PRINTED_FRACTION = re.compile(r"--mem-fraction-static=(\d*\.\d+)")
_MAMBA_RAISED = "SGLang raised while it sized the mamba cache, whose deduction is therefore not known"
_UNITS: dict[Formula, str] = {"tokens-inline": "tokens", "tokens": "tokens"}


def _budget(call: Call, home: Formula) -> Attributes:
    """Return the terms. `home` is the formula that this home has had, for a body that nobody has read yet."""
    notes = call.notes
    body = fingerprint(call.wrapped)
    formula = FORMULAS.get(body or "", home)
    available, fraction = notes.get("available"), fraction_in_force(call)
    pre_load = number(next(iter(call.arguments.values()), None))  # total_gpu_memory, pre_model_load_memory
    slack, floored = slack_of(call, available, pre_load, fraction)
    rest = _rest(available, slack, notes)
    deductions = _deductions(notes)
    minimum, why = minimum_viable_fraction(available, pre_load, deductions, floored, notes.get("mamba_is_fixed", False))
    if notes.get("mamba_raised"):
        minimum, why = None, _MAMBA_RAISED
    terms: Attributes = {
        "available_bytes": gib_to_bytes(available),
        "available_gib": available,
        "available_local_bytes": notes.get("available_local"),
        "pre_load_bytes": gib_to_bytes(pre_load),
        "pre_load_gib": pre_load,
        "mem_fraction_static": fraction,
        "static_budget_bytes": None if pre_load is None or fraction is None else gib_to_bytes(pre_load * fraction),
        "slack_bytes": gib_to_bytes(slack),
        "slack_is_floor": floored,
        "deductions": deductions,
        "rest_bytes": None if rest is None else int(rest * GIB),
        "bytes_per_token": notes.get("bytes_per_token"),
        "result": integer(call.result),
        "result_unit": _UNITS.get(formula, "bytes"),
        "formula": WHAT[formula],
        "body": body,
        "minimum_viable_fraction": minimum,
        "minimum_viable_fraction_reason": why,
        "minimum_viable_fraction_printed": _printed_minimum(call.error),
    }
    terms["verified"], terms["verified_reason"] = _verify(call, terms, rest, formula)
    return terms


def _rest(available: float | None, slack: float | None, notes: Attributes) -> float | None:
    """Return the rest in GiB, subtracting in SGLang's order: another order rounds differently."""
    if notes.get("mamba_raised"):
        return None
    if "rest_after_mamba" in notes:
        after: float = notes["rest_after_mamba"]
        return after
    if available is None or slack is None:
        return None
    rest = available - slack
    for deduction in ("multimodal", "mamba_inline"):
        if notes.get(deduction) is not None:
            rest -= notes[deduction]
    return rest


def _rest_before_mamba(terms: Attributes, notes: Attributes) -> float:
    own: float = terms["pre_load_gib"] * (1 - terms["mem_fraction_static"])
    rest: float = terms["available_gib"] - (float(notes["slack_floor"]) if terms["slack_is_floor"] else own)
    return rest if notes.get("multimodal") is None else rest - float(notes["multimodal"])


def _deductions(notes: Attributes) -> dict[str, int]:
    before, after = notes.get("rest_before_mamba"), notes.get("rest_after_mamba")
    taken = {
        "multimodal": notes.get("multimodal"),
        "mamba": before - after if before is not None and after is not None else notes.get("mamba_inline"),
    }
    in_bytes = {name: gib_to_bytes(gib) for name, gib in taken.items() if gib}
    return {name: size for name, size in in_bytes.items() if size is not None}


def minimum_viable_fraction(
    available: float | None,
    pre_load: float | None,
    deductions: dict[str, int],
    floored: bool = False,
    mamba_is_fixed: bool = False,
) -> tuple[float | None, str | None]:
    """Return 1 - (available - deductions) / pre-load and None, or None and why there is no such number.

    The story: 1 - 21.697 / 93.999 = 0.7692.
    """
    if not available or not pre_load:
        return None, "available or pre-load memory is not known"
    if floored:
        return None, "SGLang's floor on the slack binds: the fraction does not decide"
    if "mamba" in deductions and not mamba_is_fixed:
        return None, "the deduction (mamba) depends on the fraction"
    return 1 - (available - sum(deductions.values()) / GIB) / pre_load, None


def _verify(call: Call, terms: Attributes, rest: float | None, formula: Formula) -> tuple[bool | None, str | None]:
    if call.notes.get("mamba_raised"):
        return None, _MAMBA_RAISED
    if rest is None or terms["available_gib"] is None or terms["mem_fraction_static"] is None:
        missing = [name for name in ("available_gib", "pre_load_gib", "mem_fraction_static") if terms[name] is None]
        return None, f"not captured: {', '.join(missing)}"
    if call.error is not None:
        verdict, reason = _verify_raise(terms, rest, call.error)
    else:
        verdict, reason = _reproduce(call, terms, rest, formula)
    if verdict and terms["body"] not in FORMULAS:
        unknown = f"the body of SGLang's function ({terms['body']}) is not a known one"
        return None, f"the terms reproduce the result, but {unknown}"
    return verdict, reason


def _reproduce(call: Call, terms: Attributes, rest: float, formula: Formula) -> tuple[bool | None, str | None]:
    result, cell = terms["result"], terms["bytes_per_token"]
    before = call.notes.get("rest_before_mamba")
    if terms["slack_is_floor"] and call.notes.get("slack_floor") is None:
        return None, "SGLang's floor on the slack is not observable in this release: it is taken from the rest itself"
    if before is not None and before != _rest_before_mamba(terms, call.notes):
        return False, f"SGLang had {before} GiB before the mamba deduction, which the terms do not give"
    if result is None:
        return None, "SGLang's function returned no number"
    if terms["result_unit"] == "tokens" and not cell:
        why = call.notes.get("bytes_per_token_reason", "nobody asked for it")
        return None, f"not captured: bytes_per_token ({why})"
    if formula == "tokens-inline":
        computed = int(rest * GIB // cell)
    else:
        computed = int(rest * GIB) // (cell if formula == "tokens" else 1)
    if computed != result:
        unit = terms["result_unit"]
        return False, f"the terms give {computed} {unit}, SGLang returned {result}: its formula has another term"
    return True, None


def _verify_raise(terms: Attributes, rest: float, error: object) -> tuple[bool | None, str | None]:
    printed, available, pre_load = (
        terms[name] for name in ("minimum_viable_fraction_printed", "available_gib", "pre_load_gib")
    )
    if printed is None or not pre_load:
        return None, "SGLang raised instead of returning a number to compare with"
    fraction = _PRINTED_FRACTION.search(str(error))
    if fraction is not None and float(fraction[1]) != terms["mem_fraction_static"]:
        return False, f"SGLang's message says a fraction of {fraction[1]}, not {terms['mem_fraction_static']}"
    said = 1 - available / pre_load  # SGLang's own leaves the deductions out
    if rest <= 0 and f"{said:.4f}" == f"{printed:.4f}":
        return True, None
    return False, f"SGLang's message says a minimum of {printed}, the terms give {said:.4f}"


def _printed_minimum(error: BaseException | None) -> float | None:
    match = _PRINTED_MINIMUM.search(str(error)) if error is not None else None
    return float(match[1]) if match else None


def _end_inline(call: Call) -> Attributes:
    found = bytes_per_token(call.instance, call.target.module, fingerprint(call.wrapped))
    call.notes["bytes_per_token"], call.notes["bytes_per_token_reason"] = found
    if "rest_after_mamba" not in call.notes:
        call.notes["mamba_inline"] = fixed_mamba_gib(call.instance)
        call.notes["mamba_is_fixed"] = True
    return _share(call, _budget(call, "tokens-inline"))


def _end_tokens(call: Call) -> Attributes:
    return _share(call, _budget(call, "tokens"))


def _end_bytes(call: Call) -> Attributes:
    return _share(call, _budget(call, "bytes"))


def _share(call: Call, terms: Attributes) -> Attributes:
    around = call.enclosing("kv.pool")
    if around is not None:
        around.notes["profile"] = terms
    return terms


PROFILE_INLINE = Reader(end=_end_inline)
PROFILE_TOKENS = Reader(end=_end_tokens)
PROFILE_BYTES = Reader(end=_end_bytes)
