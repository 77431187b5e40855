"""Imported by SGLang at load time; every function in it refuses to run."""

from __future__ import annotations

from sgl_kernel import refusing

__getattr__ = refusing(__name__)
