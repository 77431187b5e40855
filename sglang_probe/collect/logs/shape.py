"""Which texts are records that may say that memory ran out, which are prose about it, and which are users' own words.

An exception's name stands at a line's beginning, a traceback says so, and SGLang's prefix stands before the rest. The
same words in the middle of a sentence, in a request's log or in the JSON of a chat are somebody's who writes about it.
"""

from __future__ import annotations

import re
from typing import Final

_RECORD: Final = re.compile(
    r"(?:CUDA|HIP|XPU|NPU|MUSA) (?:error: )?out of memory[.:]|Failed to CUDA (?:calloc|malloc)|cudaMalloc\w* failed"
    r"|what\(\): |terminate called |(?:[\w.\-]+:\d+:\d+ )?\[\d+\] .{0,200}?(?:NCCL )?WARN |Cuda failure "
    r"|Capture [\w ]{0,40}graph failed: |(?:[\w.]{0,80}\.)?(?:CUBLAS_STATUS_|cudaError|CUDA_ERROR_|hipError)"
    r"|Not enough (?:GPU )?memory\. Please try|Loaded weights leave no GPU memory for the KV cache under --"
    r"|(?:Prefill|Decode) out of memory\. "
)
"""What libraries and the releases without prefix write at a line's beginning, without an exception's name."""
_USERS: Final = re.compile(
    r"(?:Receive|Finish|Received|New generate request|Request)\b[^\[]{0,60}?"
    r"(?:obj|rid|req\w*|text|body|prompt)\b *[=:(]"
    r"|(?:Receive|Finish): |(?:request\.(?:received|finished)|Received (?:/\S+ )?request)\b"
    r"|\{ ?['\"](?:event['\"]: ?['\"]request\.|(?:prompt|text|content|messages|role|input|inputs|model)['\"] ?:)"
    r"|['\"](?:prompt|text|content|messages|role|input|inputs)['\"] ?:"
)
ACCESS: Final = re.compile(r"(?:INFO: +)?\S{1,80} - (?:\S{1,40} \[[^\]]{1,60}\] )?\"[A-Z]{3,8} ")
"""uvicorn's line of a request, and other servers'."""
QUOTES: Final = "> \t"
"""What stands before a line that is quoted in a mail or an issue."""


def is_record(text: str, prefixed: bool) -> bool:
    """Say whether a text that is no exception may be a record of a failure, and not a sentence about one."""
    return (prefixed or _RECORD.match(text) is not None) and ACCESS.match(text) is None


def is_users(text: str) -> bool:
    """Say whether a text is a logged request, or a line of one: it holds what a user wrote."""
    return _USERS.match(text) is not None
