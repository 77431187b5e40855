"""Plain SGLang logs: text in, one `LogRun` a server start out."""

from sglang_probe.collect.logs.kinds import KINDS
from sglang_probe.collect.logs.model import RANK_TOKENS, Amount, Entry, Fact, LogRun

__all__ = ["KINDS", "RANK_TOKENS", "Amount", "Entry", "Fact", "LogRun"]
