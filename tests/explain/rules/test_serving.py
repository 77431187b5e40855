"""What a server that is ready serves with, and a record that is not complete."""

from __future__ import annotations

from sglang_probe.timeline.model import Health, Kv
from tests.explain.explaining import failed, of, rank, ready
from tests.timeline.building import gib


def test_a_ready_run_says_its_tokens_and_what_limits_them() -> None:
    kv = Kv(tokens=100_000, bytes=gib(6.5), bytes_per_token=70272, limited_by="memory")
    found = of("kv_cache", ready(rank(0, 1, available=80.0, weights=14.0, kv=kv)))

    assert (
        "100,000 tokens of 70,272 B, 6.500 GiB on each rank. 80.000 GiB stay free on the fullest device. Memory"
        " limits it" in found.says
    )


def test_a_cap_on_the_tokens_is_not_called_memory() -> None:
    kv = Kv(tokens=16_384, bytes_per_token=70272, limited_by="max_total_tokens", max_total_tokens_given=16_384)
    found = of("kv_cache", ready(rank(0, 1, available=80.0, weights=14.0, kv=kv)))

    assert "--max-total-tokens 16,384 limits it, not memory" in found.says


def test_tokens_that_are_asked_for_and_not_there_come_with_the_fraction_that_gives_them() -> None:
    kv = Kv(tokens=100_000, bytes_per_token=70272, limited_by="memory")
    run = ready(rank(0, 1, available=80.0, weights=14.0, fraction=0.3, kv=kv))

    (note,) = of("kv_cache", run, tokens=500_000).notes
    assert 1 - (80.0 - 500_000 * 70272 / (1 << 30)) / 94.0 <= float(note.rpartition(" ")[2])
    assert "empty by" in of("kv_cache", run, tokens=5_000_000).notes[0]
    assert "fit" in of("kv_cache", run, tokens=50_000).notes[0]


def test_what_is_free_beyond_sglang_s_own_reserve_may_go_to_the_cache() -> None:
    kv = Kv(tokens=100_000, bytes_per_token=70272, limited_by="memory")

    assert "a higher --mem-fraction-static gives more" in of("kv_cache", ready(rank(0, 1, available=80.0, kv=kv))).says
    assert "is for serving's activations" in of("kv_cache", ready(rank(0, 1, available=5.0, kv=kv))).says


def test_a_record_with_losses_says_that_there_may_be_more() -> None:
    health = Health(ok=False, says=("events are lost (3)",), lost_events=3)
    found = of("incomplete", failed(rank(0, 1), health=health))

    assert "events are lost (3)" in found.says
    assert found.severity == "warning"
