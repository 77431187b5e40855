"""What docs/metrics.md promises, as a test reads it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

DOCS: Final = (Path(__file__).parents[3] / "docs" / "metrics.md").read_text(encoding="utf-8")
(RULES,) = re.findall(r"```yaml\n(.*?)```", DOCS, re.DOTALL)
"""Its alerts."""


def alerts() -> dict[str, str]:
    """Return the expression of each alert by its name."""
    found = re.findall(r"- alert: (\w+)\n +expr: (?:\|\n)?(.*?)\n +annotations:", RULES, re.DOTALL)
    assert RULES.count("- alert:") == len(found)
    return {name: " ".join(expression.split()) for name, expression in found}
