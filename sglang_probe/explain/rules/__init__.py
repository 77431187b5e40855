"""The rules, in the order in which they lead where several find a cause.

A rule is a function from a run to its findings; each has an anchor in docs/explain.md. It may find nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from sglang_probe.explain.model import Finding
from sglang_probe.explain.rules import (
    advice,
    allreduce,
    budget,
    devices,
    endings,
    fraction,
    log_assumed,
    log_endings,
    logs,
    memory,
    pools,
    ranks,
    serving,
    tenants,
)
from sglang_probe.explain.subject import Subject

Rule = Callable[[Subject], Iterable[Finding]]

RULES: Final[tuple[Rule, ...]] = (
    devices.shared_device,
    devices.stray_context,
    tenants.two_servers,
    tenants.foreign_tenant,
    logs.named_tenant,
    tenants.unlisted_memory,
    tenants.left_over,
    ranks.rank_spread,
    ranks.mixed_cards,
    budget.weights_exceed_budget,
    pools.no_room_in_a_pool,
    budget.deductions,
    fraction.fraction_in_force,
    memory.graphs,
    memory.out_of_memory,
    memory.later_errors,
    memory.survived_errors,
    memory.activation_reserve,
    memory.fragmentation,
    memory.growth,
    serving.kv_cache,
    log_assumed.assumed,
    logs.implied_pre_load,
    logs.retractions,
    allreduce.custom_all_reduce,
    endings.not_memory,
    endings.unfinished,
    advice.advice,
    allreduce.before_the_weights,
    serving.incomplete,
    logs.printed_memory,
    log_endings.looks_fatal,
)
LAST: Final[Rule] = endings.unexplained
"""Asked where none of them names a cause of a failure."""
