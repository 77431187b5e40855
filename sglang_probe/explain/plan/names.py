"""What the numbers of a plan are called in text: 24 characters at most."""

from __future__ import annotations

from typing import Final

NAMES: Final = {
    "tenants_bytes": "other processes",
    "custom_allreduce_bytes": "custom all-reduce",
    "communicators_bytes": "communicators",
    "pre_load_bytes": "pre-load memory",
    "weights_bytes": "weights",
    "draft_weights_bytes": "draft weights",
    "else_before_bytes": "other use before budget",
    "available_bytes": "available",
    "mem_fraction_static": "mem_fraction_static",
    "slack_bytes": "slack kept from KV",
    "rest_bytes": "rest: KV cache's budget",
    "minimum_viable_fraction": "minimum viable fraction",
    "bytes_per_token": "bytes of a token",
    "page_size": "tokens of a page",
    "tokens": "tokens",
    "context_length": "context length",
    "concurrency": "full-length requests",
    "kv_pool_bytes": "KV pools on the card",
    "max_running_requests": "most running requests",
    "request_pool_bytes": "request pool",
    "attention_bytes": "attention workspace",
    "graphs_bytes": "graphs",
    "else_after_bytes": "other use after budget",
    "free_bytes": "free after the start",
    "activations_bytes": "reserve for activations",
    "spare_bytes": "free beyond the reserve",
}


def name_of(number: str) -> str:
    """Return a number's name in text."""
    return NAMES.get(number) or number.replace("deductions.", "deducted: ")
