"""The terms of the budget, observed where SGLang itself computes them, and the fraction that is in force.

`available` is never measured by us: SGLang's measuring function empties torch's cache and runs a collective. Observers
note what passes through the names that the budget function looks up, only while it runs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from sglang_probe.agent.calls import Attributes, Call, Reader, integer, number
from sglang_probe.agent.readers.context import first_integer, published, read

GIB = 1 << 30


def fraction_in_force(call: Call) -> float | None:
    """Return the mem_fraction_static that the budget function uses, from the first of its three homes that has one.

    Up to 0.5.15 the runner's own (some releases change it in place), from 0.5.17 the schedule bag of the runtime
    context, in 0.5.16 the server's arguments. From 0.5.20 the arguments hold what was given, which may be nothing.
    """
    own = number(getattr(call.instance, "mem_fraction_static", None))
    if own is not None:
        return own
    # The context is older than the budget's use of it: only what the budget's own module looks up is in force.
    if hasattr(sys.modules.get(call.target.module), "get_schedule"):
        scheduled = number(read(published("get_schedule"), "mem_fraction_static"))
        if scheduled is not None:
            return scheduled
    return number(getattr(getattr(call.instance, "server_args", None), "mem_fraction_static", None))


def slack_of(
    call: Call, available: float | None, pre_load: float | None, fraction: float | None
) -> tuple[float | None, bool]:
    """Return the slack in GiB and whether SGLang's floor on it binds.

    The floor exists only for mamba models that are sized after graph capture. Where its value is not observable
    (0.5.16, 0.5.17), it is what SGLang took off before the mamba deduction.
    """
    if pre_load is None or fraction is None:
        return None, False
    slack = pre_load * (1 - fraction)
    floor = call.notes.get("slack_floor")
    if floor is not None:
        return (floor, True) if floor > slack else (slack, False)
    before = call.notes.get("rest_before_mamba")
    active = getattr(call.instance, "post_capture_kv_active", None)
    if active is True and before is not None and available is not None:
        taken = available - before - (call.notes.get("multimodal") or 0.0)
        if before < available - slack:
            return taken, True
    return slack, False


def _of_profile(note: Callable[[Call, Attributes], None]) -> Callable[[Call], Attributes]:
    """Return a reader that tells `note` of a call which the budget function makes itself."""

    def end(call: Call) -> Attributes:
        around = call.parent
        if around is not None and around.target.role == "kv.profile":
            note(call, around.notes)
        return {}

    return end


def _available(call: Call, notes: Attributes) -> None:
    notes["available"] = number(call.result)
    notes["available_local"] = call.agent.device_free()


def _cell(call: Call, notes: Attributes) -> None:
    notes["bytes_per_token"] = integer(call.result)


def _mamba(call: Call, notes: Attributes) -> None:
    after = number(call.result)
    notes["mamba_raised"] = call.error is not None
    if after is not None:
        notes["rest_before_mamba"] = number(call.arguments.get("total_rest_memory"))
        notes["rest_after_mamba"] = after
        notes["mamba_is_fixed"] = call.notes.get("given") is not None


def _mamba_begin(call: Call) -> Attributes:
    # Asked before the call: it writes the size it finds into the same place.
    arguments = getattr(call.instance, "server_args", None)
    call.notes["given"] = first_integer("max_mamba_cache_size", published("get_schedule"), arguments)
    return {}


def _multimodal(call: Call, notes: Attributes) -> None:
    notes["multimodal"] = number(call.result)


def _slack_floor(call: Call, notes: Attributes) -> None:
    reserve = number(call.result)  # MiB
    notes["slack_floor"] = None if reserve is None else reserve / 1024


def _configurator(call: Call) -> Attributes:
    around = call.parent
    if around is not None and around.target.role == "kv.pool":
        around.notes["bytes_per_token"] = integer(getattr(call.result, "_cell_size", None))
    return {}


AVAILABLE = Reader(end=_of_profile(_available))
CELL_SIZE = Reader(end=_of_profile(_cell))
MAMBA = Reader(begin=_mamba_begin, end=_of_profile(_mamba))
MULTIMODAL = Reader(end=_of_profile(_multimodal))
SLACK_FLOOR = Reader(end=_of_profile(_slack_floor))
CONFIGURATOR = Reader(end=_configurator)
