"""The scenes of the story, each played once a session, when somebody asks for it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.story.scenes import Stage

Scene = Callable[[str], Path]


@pytest.fixture(scope="session")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    """Return the directory of a scene's events, by its name."""
    return Stage(tmp_path_factory.mktemp("story")).play
