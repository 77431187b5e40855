"""The main chart as a picture, PNG or SVG: `write`."""

from sglang_probe.report.image.draw import write

__all__ = ["write"]
