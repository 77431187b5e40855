"""What the tests of this room share."""

from __future__ import annotations

import pytest

from tests.collect.building import Writer
from tests.collect.starting import Shape, launch


@pytest.fixture
def writer() -> Writer:
    """A rank that started without trouble."""
    return launch([Shape()])[1]
