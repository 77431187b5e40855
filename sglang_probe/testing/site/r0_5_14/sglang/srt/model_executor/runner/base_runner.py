"""The base class of everything that runs a forward pass."""

from __future__ import annotations

from abc import ABC
from typing import Any


class BaseRunner(ABC):
    def __init__(self, model_runner: Any) -> None:
        self.model_runner, self.device = model_runner, model_runner.device
