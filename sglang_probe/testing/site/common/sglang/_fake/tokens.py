"""Generated text without a model: the same prompt always gets the same tokens."""

from __future__ import annotations

import hashlib
from typing import Any


def generate(text: str, max_new_tokens: int) -> dict[str, Any]:
    """Return what `/generate` answers: the text, the token ids and the usual facts about them."""
    digest = hashlib.sha256(text.encode()).digest()
    ids = [int.from_bytes(digest[2 * (n % 16) : 2 * (n % 16) + 2], "big") + n // 16 for n in range(max_new_tokens)]
    info = {"prompt_tokens": len(text.split()), "completion_tokens": max_new_tokens}
    return {"text": "".join(f" t{one}" for one in ids), "output_ids": ids, "meta_info": info}
