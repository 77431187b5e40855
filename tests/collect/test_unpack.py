"""Compressed input is read as what it holds, recognised by content, and as far as it is whole."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import random
from collections.abc import Callable

import pytest
from backports import zstd

from sglang_probe.collect.unpack import Unpacked, beginning

PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "zstd": zstd.compress,
    "xz": lzma.compress,
    "bzip2": bz2.compress,
}
TEXT = b"".join(b"line %d of a log, %d\n" % (number, number * number) for number in range(20_000))
SKIPPABLE = b"\x50\x2a\x4d\x18\x04\x00\x00\x00abcd"


def _read(data: bytes, size: int = 64 * 1024) -> tuple[bytes, str | None]:
    stream = Unpacked(io.BytesIO(data), "given")
    found = b"".join(iter(lambda: stream.read(size), b""))
    return found, stream.fault


@pytest.mark.parametrize("packing", PACKERS)
@pytest.mark.parametrize("size", [7, 64 * 1024])
def test_what_is_compressed_is_read_as_its_content(packing: str, size: int) -> None:
    text = TEXT[: size * 1000]

    assert (text, None) == _read(PACKERS[packing](text), size)


@pytest.mark.parametrize("packing", PACKERS)
def test_members_that_follow_each_other_are_one_text(packing: str) -> None:
    pack = PACKERS[packing]

    assert (TEXT + b"more" + TEXT, None) == _read(pack(TEXT) + pack(b"more") + pack(TEXT))


@pytest.mark.parametrize("packing", PACKERS)
def test_of_a_cut_off_archive_what_is_whole_is_read(packing: str) -> None:
    noise = random.Random(1).randbytes(3 << 20)  # does not compress: every block of it is in the archive
    found, fault = _read(PACKERS[packing](noise)[: 2 << 20])

    assert noise.startswith(found)
    assert len(found) > len(noise) // 4
    assert "it is cut off" == fault


@pytest.mark.parametrize("packing", PACKERS)
def test_of_a_damaged_archive_what_stands_before_is_read(packing: str) -> None:
    whole = PACKERS[packing](TEXT)
    found, fault = _read(whole + whole[: len(whole) // 2] + bytes(1000) + b"\xff" * 1000 + whole[len(whole) // 2 :])

    assert found.startswith(TEXT)
    assert "it is damaged" == fault


@pytest.mark.parametrize("packing", PACKERS)
def test_zeros_after_the_end_are_no_fault_and_anything_else_is(packing: str) -> None:
    packed = PACKERS[packing](TEXT)

    assert (TEXT, None) == _read(packed + bytes(70_000))
    assert (TEXT, "what follows its end is something else") == _read(packed + b"something else")


def test_a_zstd_frame_without_content_is_passed_over() -> None:
    assert (TEXT, None) == _read(SKIPPABLE + zstd.compress(TEXT) + SKIPPABLE)


@pytest.mark.parametrize("size", [1, 1000, 64 * 1024, 1 << 20])
def test_what_is_not_compressed_is_passed_on(size: int) -> None:
    text = TEXT[: size * 1000]

    assert (text, None) == _read(text, size)


def test_a_small_file_that_unpacks_to_a_large_one_is_read_a_block_at_a_time() -> None:
    stream = Unpacked(io.BytesIO(gzip.compress(bytes(64 << 20))), "given")

    assert 1000 == len(stream.read(1000))


def test_the_beginning_is_of_the_content() -> None:
    assert TEXT[:100] == beginning(io.BytesIO(gzip.compress(TEXT)), "given", 100)
    assert b"ab" == beginning(io.BytesIO(b"ab"), "given", 100)
