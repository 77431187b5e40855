"""Two ranks that stay alive: the tests of this room run the real class bodies of every release on them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.bodies.ranks import Ranks


@pytest.fixture(scope="session")
def cuda(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ranks]:
    """Two ranks whose torch says CUDA."""
    yield from _world(tmp_path_factory, "cuda")


@pytest.fixture(scope="session")
def hip(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ranks]:
    """Two ranks whose torch says ROCm."""
    yield from _world(tmp_path_factory, "hip")


@pytest.fixture(scope="session")
def eight(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ranks]:
    """Rank 0 of eight, of which the others are torch's fake backend: for a class that wants eight ranks."""
    yield from _world(tmp_path_factory, "eight", 8, "cuda")


def _world(factory: pytest.TempPathFactory, name: str, world: int = 2, platform: str = "") -> Iterator[Ranks]:
    ranks = Ranks(factory.mktemp(name, numbered=False), world, platform or name)
    yield ranks
    ranks.stop()
