"""Another tool patches the function that we hook: before us, after us, through us or over us."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest
import wrapt

from sglang_probe.catalogue.targets import Target

MakeTarget = Callable[..., Target]
Patch = Callable[[Any, str], list[str]]
"""Patches an attribute of an owner so that each call is noted in the list it returns, then goes on as before."""


class Runner:
    """Stands for a class of SGLang's."""

    def __init__(self) -> None:
        self.calls = 0
        self.answer = object()

    def load(self) -> object:
        self.calls += 1
        return self.answer


def fresh() -> type[Runner]:
    """A class that no other test has hooked."""
    return type("Runner", (), dict(vars(Runner)))


def with_wrapt(owner: Any, name: str) -> list[str]:
    seen: list[str] = []

    def wrapper(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        seen.append(name)
        return wrapped(*args, **kwargs)

    wrapt.wrap_function_wrapper(owner, name, wrapper)
    return seen


def with_wraps(owner: Any, name: str) -> list[str]:
    seen, before = list[str](), getattr(owner, name)

    @functools.wraps(before)
    def patched(*args: Any, **kwargs: Any) -> Any:
        seen.append(name)
        return before(*args, **kwargs)

    setattr(owner, name, patched)
    return seen


def with_a_closure(owner: Any, name: str) -> list[str]:
    seen, before = list[str](), getattr(owner, name)

    def patched(*args: Any, **kwargs: Any) -> Any:
        seen.append(name)
        return before(*args, **kwargs)

    setattr(owner, name, patched)
    return seen


SAVED: dict[object, Any] = {}


def with_a_registry(owner: Any, name: str) -> list[str]:
    """What stood there before cannot be found from the function that now stands there."""
    seen, key = list[str](), object()
    SAVED[key] = getattr(owner, name)

    def patched(*args: Any, **kwargs: Any) -> Any:
        seen.append(name)
        return SAVED[key](*args, **kwargs)

    setattr(owner, name, patched)
    return seen


PATCHES = [with_wrapt, with_wraps, with_a_closure, with_a_registry]


def displaced(probe: Any) -> list[str]:
    return [target.path for target in probe.agent._hooks.displaced()]


@pytest.mark.parametrize(("before", "after"), [*itertools.product([None, *PATCHES], repeat=2)])
def test_tools_before_and_after_us_all_see_each_call_once(
    probe: Any, target: MakeTarget, before: Patch | None, after: Patch | None
) -> None:
    cls = fresh()
    logs = [before(cls, "load")] if before else []
    module = probe.hook([target("Runner.load")], Runner=cls)
    logs += [after(cls, "load")] if after else []
    runner = module.Runner()
    assert runner.load() is runner.answer
    assert (runner.calls, logs) == (1, [["load"]] * len(logs))
    assert [event["kind"] for event in probe.memory()] == ["begin", "end"]
    assert displaced(probe) == []
    assert probe.states() == {"Runner.load": "applied"}


@pytest.mark.parametrize("patch", [with_wrapt, with_wraps, with_a_closure])
def test_a_patch_that_shows_what_it_calls_is_not_taken_for_a_displacement(
    probe: Any, target: MakeTarget, patch: Patch
) -> None:
    module = probe.hook([target("Runner.load")], Runner=fresh())
    patch(module.Runner, "load")
    patch(module.Runner, "load")
    assert displaced(probe) == []


@pytest.mark.parametrize("patch", PATCHES)
def test_hooking_a_module_again_under_another_tools_patch_doubles_no_event(
    probe: Any, target: MakeTarget, patch: Patch
) -> None:
    module = probe.hook([target("Runner.load")], Runner=fresh())
    patch(module.Runner, "load")
    module.Runner().load()
    probe.agent.hook(module)
    module.Runner().load()
    assert [event["kind"] for event in probe.memory()] == ["begin", "end"] * 2


def test_a_replacement_that_does_not_call_us_is_reported_and_is_what_the_host_gets(
    probe: Any, target: MakeTarget
) -> None:
    module = probe.hook([target("Runner.load")], Runner=fresh())
    module.Runner.load = lambda self: "theirs"
    assert module.Runner().load() == "theirs"
    probe.agent.report_displaced()
    assert (probe.memory(), probe.states()) == ([], {"Runner.load": "displaced"})


def test_a_replacement_after_a_call_is_reported_as_well(probe: Any, target: MakeTarget) -> None:
    module = probe.hook([target("Runner.load")], Runner=fresh())
    module.Runner().load()
    module.Runner.load = lambda self: "theirs"
    assert displaced(probe) == ["Runner.load"]


def test_a_patch_that_hides_what_it_calls_counts_as_displacing_until_its_first_call(
    probe: Any, target: MakeTarget
) -> None:
    module = probe.hook([target("Runner.load")], Runner=fresh())
    with_a_registry(module.Runner, "load")
    assert displaced(probe) == ["Runner.load"]
    module.Runner().load()
    assert displaced(probe) == []


def test_a_tool_that_restores_the_function_it_saved_before_us_is_reported(probe: Any, target: MakeTarget) -> None:
    cls = fresh()
    saved = vars(cls)["load"]
    module = probe.hook([target("Runner.load")], Runner=cls)
    with_wraps(cls, "load")
    runner = module.Runner()
    runner.load()
    cls.load = saved  # type: ignore[method-assign]
    assert runner.load() is runner.answer
    assert displaced(probe) == ["Runner.load"]
    assert len(probe.memory()) == len(["begin", "end"])


def test_a_tool_that_restores_what_it_found_after_us_leaves_us_in_force(probe: Any, target: MakeTarget) -> None:
    module = probe.hook([target("Runner.load")], Runner=fresh())
    with mock.patch.object(module.Runner, "load", return_value="theirs"):
        assert module.Runner().load() == "theirs"
        assert displaced(probe) == ["Runner.load"]
    module.Runner().load()
    assert displaced(probe) == []
    assert [event["kind"] for event in probe.memory()] == ["begin", "end"]


def test_a_tool_that_deletes_the_attribute_is_reported(probe: Any, target: MakeTarget) -> None:
    module = probe.hook([target("Runner.load"), target("function")], Runner=fresh(), function=lambda: 7)
    del module.Runner.load, module.function
    assert displaced(probe) == ["Runner.load", "function"]


def test_a_class_replaced_by_its_subclass_keeps_the_hook_and_by_a_stranger_loses_it(
    probe: Any, target: MakeTarget
) -> None:
    module = probe.hook([target("Runner.load")], Runner=fresh())
    module.Runner = type("Runner", (module.Runner,), {})
    assert displaced(probe) == []
    module.Runner = fresh()
    assert displaced(probe) == ["Runner.load"]
    module.Runner = None
    assert displaced(probe) == ["Runner.load"]


def test_a_partial_and_a_static_method_over_the_hook_lead_to_it(probe: Any, target: MakeTarget) -> None:
    module = probe.hook([target("function"), target("Runner.load")], Runner=fresh(), function=lambda answer: answer)
    module.function = functools.partial(module.function, 7)
    module.Runner.load = functools.partialmethod(vars(module.Runner)["load"])
    assert displaced(probe) == []
    assert module.function() == 7 and len(probe.memory()) == len(["begin", "end"])


def test_wrappers_that_lead_in_a_circle_end(probe: Any, target: MakeTarget) -> None:
    module = probe.hook([target("function")], function=lambda: 7)

    def one() -> None: ...

    def two() -> None: ...

    one.__wrapped__, two.__wrapped__ = two, one  # type: ignore[attr-defined]
    module.function = one
    assert displaced(probe) == ["function"]


def test_a_stand_in_that_answers_every_question_is_not_taken_for_our_hook(probe: Any, target: MakeTarget) -> None:
    module = probe.hook([target("function")], function=mock.MagicMock(return_value=7))
    assert module.function() == 7
    assert [event["kind"] for event in probe.memory()] == ["begin", "end"]


def test_an_owner_that_cannot_be_looked_into_costs_the_host_nothing(probe: Any, target: MakeTarget) -> None:
    module = probe.hook([target("Runner.load")], Runner=fresh())
    runner = module.Runner()
    module.Runner = 7  # whatever somebody puts there
    assert runner.load() is runner.answer
    assert [event["kind"] for event in probe.memory()] == ["begin", "end"]
