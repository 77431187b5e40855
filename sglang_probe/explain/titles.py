"""The rules by name: how each is called in a report. The anchors of docs/explain.md are these names with hyphens."""

from __future__ import annotations

from typing import Final

from sglang_probe.explain.model import Finding

TITLES: Final[dict[str, str]] = {
    "shared_device": "two ranks on one device",
    "stray_context": "a context where none belongs",
    "two_servers": "another server on the same cards",
    "foreign_tenant": "another process on the cards",
    "unlisted_memory": "memory that no process list names",
    "left_over": "a left-over of an earlier server",
    "rank_spread": "ranks are not alike",
    "mixed_cards": "cards are not alike",
    "weights_exceed_budget": "weights exceed the static budget",
    "no_room_in_a_pool": "a pool has no room",
    "draft_and_recurrent": "draft, recurrent states, multimodal",
    "fraction_in_force": "the fraction in force",
    "graphs": "out of memory in graph capture",
    "out_of_memory": "out of memory",
    "activation_reserve": "little room for serving",
    "fragmentation": "fragmentation",
    "growth": "memory of others moved",
    "custom_all_reduce": "the custom all-reduce",
    "not_memory": "not memory",
    "host_memory": "the host's memory",
    "unfinished": "the record ends here",
    "advice": "SGLang's own advice",
    "before_the_weights": "before the weights",
    "kv_cache": "the KV cache",
    "implied_pre_load": "the pre-load memory",
    "assumed": "what you assume",
    "retractions": "the KV cache was full",
    "printed_memory": "what the log prints",
    "incomplete": "the record is not complete",
    "unexplained": "unexplained",
}
NOT_WEIGHTS: Final = "what is in use exceeds the static budget"


def title_of(finding: Finding) -> str:
    """Return what a finding is called: of a budget that left nothing, for what was in use, if that is not weights."""
    if finding.rule == "weights_exceed_budget":
        numbers = finding.numbers
        weights, before, left = (numbers.get(f"{one}_bytes") for one in ("weights", "pre_load", "available"))
        if weights is not None and before is not None and left is not None and 2 * weights < before - left:
            return NOT_WEIGHTS
    return TITLES.get(finding.rule, finding.rule)
