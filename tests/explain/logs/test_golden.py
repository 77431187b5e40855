"""What is printed of a log, whole: golden files, to be read by a person."""

from __future__ import annotations

import pytest

from tests.explain.logs.test_cases import CASES, assumed
from tests.story.scenes import kept, told

SHOWN = (
    "healthy_tp8",
    "negative_tokens_reveal_effective_fraction",
    "rank_outlier_hidden_by_token_cap",
    "weights_exceed_static_budget",
    "capture_oom_memory_outside_torch",
)


@pytest.mark.parametrize("name", SHOWN)
def test_what_is_said_of_a_log_is_the_golden_report(name: str) -> None:
    code, text = told("explain", CASES / f"{name}.log", *assumed(name))

    text = text.partition("\nRead ")[0]
    assert kept(f"explain-log-{name}", text) == text
    assert code in {0, 1}
