"""The cases of logs whose right answers are known: what must be said is said, and what must not be said is not.

The figures are read out of each case's own `must_say`, so none is typed here: every one of them must stand in the
report, with as many decimals as two-decimal lines bear. Words that must stand beside them are listed by case.
"""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.story.scenes import told as printed

CASES = Path(__file__).resolve().parents[2] / "data" / "cases"
NAMES = sorted(path.stem for path in CASES.glob("*.json"))
NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?![\w%])")
BEARS = 2
"""Decimals of a GiB that a log of two decimals bears; fractions have more."""
WORDS: dict[str, list[str]] = {
    "capture_oom_memory_outside_torch": [
        "Wanted 672.00 MiB, free 200.75 MiB: short by 471.25 MiB",
        "The process holds 139.86 GiB: 128.50 GiB allocated by PyTorch + 1.01 GiB in its cache",
        "10.35 GiB are outside PyTorch",
    ],
    "fraction_artefact_in_message": [
        "The fraction in force was 0.200, read through the artefact 'self.server_args.mem_fraction_static=0.2'",
    ],
    "healthy_tp8": [
        "8 ranks: weights 16.99 to 17.00 GiB each",
        "1218251 tokens",
        "KV pools 47.19 GiB each",
        "budget = 59.64 - 76.63 x 0.170 = 46.61 GiB",
        "observed = 1218251 x 40960 B = 46.47 GiB",
        "about 77.46 GiB (+- 0.03), not the printed 76.63",
        "an estimate",
        "The custom all-reduce was on: 3703 graph addresses registered",
    ],
    "negative_tokens_reveal_effective_fraction": [
        "minimum viable fraction = 1 - 21.73 / 188.32 = 0.8846",
        "With 0.950 the budget would be +12.31 GiB",
        "-561981 tokens of 70272 B on all 8 ranks, contradicts it",
        "an effective fraction of about 0.689",
    ],
    "rank_outlier_hidden_by_token_cap": [
        "After kv.pool TP1 has 13.43 GiB free and TP0 39.54: 26.11 GiB less, ratio 0.34",
        "another card, or another tenant",
        "GPU 1",
        "--max-total-tokens 16384 limits it, not memory",
    ],
    "swa_pool_k_and_v_differ": [
        "sliding-window pool: 375360 full-layer tokens, 300288 window tokens",
        "K 8.38 GiB and V 5.59 GiB",
        "13.97 GiB a rank",
        "TP0 printed no line of a pool: unknown, not a failure",
    ],
    "token_cap_then_capture": [
        "131072 tokens of 70272 B, 8.58 GiB on each rank",
        "weights 90.07 GiB",
        "only DP0 TP0 reports weights: the rows of the other 7 ranks are unknown, not zero",
        "only DP0 TP0 reports pools: the rows of the other 7 ranks are unknown, not zero",
        "the last phase begun is graph.capture, on DP0 TP0 with 90.21 GiB free",
        "unknown from this text",
    ],
    "weights_exceed_static_budget": [
        "The static budget is 121.35 GiB (0.880 of the 137.90 that were free before the weights)",
        "weights 125.65 of them: short by 4.30 GiB",
        "minimum viable fraction = 1 - 12.25 / 137.90, which is 0.9113 by SGLang's message",
        "SGLang's own message names 0.9113 as the minimum, and by the printed lines it is 0.9112",
    ],
}
NEVER: dict[str, list[str]] = {
    "healthy_tp8": ["outlier", "ranks are not alike", "less, ratio"],
    "negative_tokens_reveal_effective_fraction": ["0.95 was in force", "0.950 was in force", "is 0.950 in force"],
    "rank_outlier_hidden_by_token_cap": ["Memory limits it", "limited by memory"],
    "swa_pool_k_and_v_differ": ["TP0 failed", "on TP0 failed", "CAUSE"],
    "token_cap_then_capture": ["out of memory", "Out of memory"],
}
OUTCOMES = {"CUDA out of memory": "failed", "refused in KV sizing": "failed", "ready": "ready"}
LEADS = {
    "capture_oom_memory_outside_torch": "out_of_memory",
    "fraction_artefact_in_message": "no_room_in_a_pool",
    "negative_tokens_reveal_effective_fraction": "fraction_in_force",
    "rank_outlier_hidden_by_token_cap": "rank_spread",
    "weights_exceed_static_budget": "weights_exceed_budget",
}


def case(name: str) -> dict[str, Any]:
    return dict(json.loads((CASES / f"{name}.json").read_text(encoding="utf-8")))


def assumed(name: str) -> list[str]:
    """Return what the reporter said of the command and the log does not hold, as a user would give it."""
    told, tokens = case(name), re.search(r"--max-total-tokens (\d+)", case(name)["flags"])
    fraction = told.get("fraction", told.get("fraction_given"))
    found = [] if fraction is None else [f"mem_fraction_static={fraction}"]
    found += [f"max_total_tokens={tokens[1]}"] if tokens else []
    return [word for one in found for word in ("--assume", one)]


@cache
def told(name: str, *words: str) -> str:
    """Return what is printed for a person, on one line and without marks between thousands."""
    _, text = printed("explain", CASES / f"{name}.log", *words)
    return re.sub(r"(?<=\d),(?=\d{3})", "", " ".join(text.split()))


@cache
def structured(name: str, *words: str) -> dict[str, Any]:
    _, text = printed("explain", "--format", "json", CASES / f"{name}.log", *words)
    (run,) = json.loads(text)["runs"]
    return dict(run)


def stands(figure: str, said: list[str]) -> bool:
    """Say whether a report has a figure, with at least as many decimals as it has itself or a log bears."""
    decimals = min(len(figure.partition(".")[2]), BEARS if float(figure) >= 1 else 4)
    wanted = round(float(figure), decimals)
    return any(round(float(one), decimals) == wanted for one in said)


def _plain(text: str) -> str:
    """Leave out the artefact, and the full stop after a figure."""
    return re.sub(r"\.(?=\s|$)", " ", re.sub(r"'self[^']*'", "", text).replace("(", " ").replace("=", " "))


@pytest.mark.parametrize("name", NAMES)
def test_every_figure_of_what_must_be_said_stands_in_the_report(name: str) -> None:
    text = told(name, *assumed(name))
    said = [one.lstrip("-") for one in NUMBER.findall(_plain(text))]

    figures = [one.lstrip("-") for line in case(name)["must_say"] for one in NUMBER.findall(_plain(line))]
    missing = [figure for figure in figures if not stands(figure, said)]
    assert [] == missing, text


@pytest.mark.parametrize("name", NAMES)
def test_what_must_be_said_is_said_in_words_and_what_must_not_is_not(name: str) -> None:
    text = told(name, *assumed(name))

    assert [] == [words for words in WORDS[name] if words not in text], text
    assert [] == [words for words in NEVER.get(name, []) if words in text], text


@pytest.mark.parametrize("name", NAMES)
def test_the_outcome_is_what_the_text_holds_and_the_right_rule_leads(name: str) -> None:
    run = structured(name, *assumed(name))
    outcome = case(name)["outcome"]
    expected = OUTCOMES.get(outcome, "failed" if "negative" in outcome else "unknown")

    assert expected == run["outcome"]
    causes = [one for one in run["findings"] if one["severity"] == "error"]
    assert (expected == "failed") == bool(causes)
    if name in LEADS:
        assert LEADS[name] == run["findings"][0]["rule"]


@pytest.mark.parametrize("name", NAMES)
def test_figures_carry_how_far_they_may_be_off(name: str) -> None:
    for one in structured(name, *assumed(name))["findings"]:
        sizes = [value for key, value in one["numbers"].items() if key.endswith("_bytes") and value is not None]
        assert not sizes or one["numbers"]["precision_bytes"] > 0, one


def test_a_default_of_an_old_release_is_assumed_where_it_alone_fits() -> None:
    (found,) = [one for one in structured("healthy_tp8")["findings"] if one["rule"] == "implied_pre_load"]

    assert case("healthy_tp8")["fraction"] == found["numbers"]["mem_fraction_static"]
    assert "possible" == found["confidence"]
    assert any("assumed" in note for note in found["notes"])


def test_without_a_fraction_negative_tokens_mean_the_same_one() -> None:
    name = "negative_tokens_reveal_effective_fraction"
    with_it, without = (structured(name, *words)["findings"][0] for words in (assumed(name), ()))

    assert with_it["numbers"]["implied_fraction"] == without["numbers"]["implied_fraction"]
    assert without["numbers"]["mem_fraction_static_given"] is None


def test_a_token_cap_is_not_called_memory_without_its_flag_either() -> None:
    text = told("rank_outlier_hidden_by_token_cap")

    assert "16384 is a person's number" in text
    assert "Memory limits it" not in text
