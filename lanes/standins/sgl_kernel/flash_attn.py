"""Imported by SGLang at load time; see the package's docstring."""

from __future__ import annotations

from sgl_kernel import refusing

__getattr__ = refusing(__name__)
