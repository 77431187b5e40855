"""The base class of attention backends."""

from __future__ import annotations

from abc import ABC


class AttentionBackend(ABC):
    """A backend: what it keeps on the device is what matters here."""
