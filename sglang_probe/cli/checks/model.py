"""What a check says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

State = Literal["ok", "warning", "error", "unknown"]

Facts = Mapping[str, Any]
"""Facts as JSON has them; a judge turns them into checks and asks nobody."""


@dataclass(frozen=True, slots=True)
class Check:
    """One thing looked at. `error`: injection would not work; `warning`: it would, with something lost or worth
    knowing; `unknown`: it could not be looked at."""

    check: str
    state: State
    says: str
    do: str | None = None
    facts: dict[str, Any] = field(default_factory=dict)
