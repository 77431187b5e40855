"""Each scene is played once a session, when somebody asks for it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from tests.story.scenes import SCENES

Scene = Callable[[str], Path]


@pytest.fixture(scope="session")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    """Return the directory of a scene's events, by its name."""

    @cache
    def played(name: str) -> Path:
        return SCENES[name](tmp_path_factory.mktemp("story") / name)

    return played
