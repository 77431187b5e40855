"""A stand-in for SGLang: the start-up of one release, phase by phase, on fake GPUs. It serves no model."""

from sglang.version import __version__

__all__ = ["__version__"]
