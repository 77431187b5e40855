"""Every body that the classes of this room have had, in every release, is one that ran here."""

from __future__ import annotations

import pytest

from sglang_probe.catalogue.bodies import releases
from tests.bodies.census import bodies
from tests.bodies.families import FAMILIES, Family


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.path)
def test_each_release_has_a_body_that_runs_here(family: Family) -> None:
    found = bodies(family.module, family.path, releases())
    assert found
    assert {} == {body: where for body, where in found.items() if not set(where) & set(family.releases)}


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.path)
def test_no_release_runs_twice_for_one_body(family: Family) -> None:
    found = bodies(family.module, family.path, family.releases)
    assert [1] * len(family.releases) == [len(where) for where in found.values()]
