"""Runs without graphs."""

from __future__ import annotations

from typing import Any

from sglang.srt.model_executor.runner.base_runner import BaseRunner


class EagerRunner(BaseRunner):
    def __init__(self, model_runner: Any) -> None:
        super().__init__(model_runner)
