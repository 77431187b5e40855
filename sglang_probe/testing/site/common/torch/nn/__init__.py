"""Modules without mathematics."""

from __future__ import annotations


class Module:
    """The base class of models."""
