"""The rules by name: how each is called in a report. The anchors of docs/explain.md are these names with hyphens."""

from __future__ import annotations

from typing import Final

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
