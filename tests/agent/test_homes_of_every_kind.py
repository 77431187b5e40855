"""Whatever SGLang makes of a home (slots, frozen, async, a property, C): it is hooked rightly, or refused and said."""

from __future__ import annotations

import abc
import collections
import contextlib
import copy
import dataclasses
import functools
import inspect
import pickle
import sys
import types
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, ClassVar

import msgspec
import pytest

from sglang_probe.catalogue.targets import Target

MakeTarget = Callable[..., Target]
BOTH = ["begin", "end"]


def kinds(probe: Any) -> list[str]:
    return [event["kind"] for event in probe.memory()]


def refusals(probe: Any) -> dict[str, str]:
    told = [e["attributes"] for e in probe.events() if e["event"] == "sglang.probe.target"]
    return {report["target"].partition(":")[2]: report["reason"] for report in told if report["state"] == "failed"}


@dataclasses.dataclass(slots=True)
class Slots:
    size: int = 7

    def load(self) -> int:
        return self.size


@dataclasses.dataclass(slots=True, frozen=True)
class Frozen:
    size: int = 7

    def load(self) -> int:
        return self.size


class Struct(msgspec.Struct, frozen=True):
    size: int = 7

    def load(self) -> int:
        return self.size


class Watched:
    """Notes every attempt to write to an instance, and forbids a weak reference to it."""

    __slots__ = ()
    written: ClassVar[list[str]] = []

    def __setattr__(self, name: str, value: Any) -> None:
        self.written.append(name)
        raise AttributeError(name)

    def load(self) -> int:
        return 7


@pytest.mark.parametrize("cls", [Slots, Frozen, Struct, Watched])
def test_a_class_without_room_on_its_instances_is_hooked_and_nothing_is_put_there(
    probe: Any, target: MakeTarget, cls: Any
) -> None:
    slots = {} if cls is Struct else {"__slots__": ()}  # msgspec makes its own
    copied = type(cls)("Runner", (cls,), {"load": vars(cls)["load"], **slots})
    module = probe.hook([target("Runner.load"), target("Runner.__init__")], Runner=copied)
    probe.agent.identity.use_device("cpu", 0)
    runner = module.Runner()
    assert runner.load() == 7
    assert kinds(probe) == BOTH
    assert not hasattr(runner, "__dict__") and Watched.written == []
    with pytest.raises(TypeError, match="weak reference"):
        weakref.ref(runner)
    assert [event["degraded"] for event in probe.memory() if event["kind"] == "end"] == [[]]


async def coroutine() -> int:
    return 7


def generator() -> Iterator[int]:
    yield 7


async def asynchronous_generator() -> AsyncIterator[int]:
    yield 7


@types.coroutine
def old_coroutine() -> Iterator[None]:
    yield


@contextlib.contextmanager
def context() -> Iterator[int]:
    yield 7


LATER = [coroutine, generator, asynchronous_generator, old_coroutine, context]


@pytest.mark.parametrize("function", LATER)
def test_a_function_that_works_after_it_has_returned_is_refused_rather_than_timed_wrongly(
    probe: Any, target: MakeTarget, function: Any
) -> None:
    runner = type("Runner", (), {"load": function, "shared": staticmethod(function)})
    rows = [target("function"), target("Runner.load"), target("Runner.shared")]
    module = probe.hook(rows, function=function, Runner=runner)
    assert module.function is function and vars(runner)["load"] is function
    assert set(refusals(probe)) == {"function", "Runner.load", "Runner.shared"}
    assert all("after it has returned" in reason for reason in refusals(probe).values())


class Odd:
    """Attributes that are no functions of the class."""

    partial = functools.partial(int, base=2) if sys.version_info < (3, 13) else len
    method = functools.partialmethod(int)
    builtin = len
    cached = functools.cached_property(lambda self: 7)
    kind = int
    constant = 7

    @property
    def load(self) -> int:
        return 7

    @functools.singledispatchmethod
    def dispatched(self, value: int) -> int:
        return value


ODD = ["partial", "method", "builtin", "cached", "kind", "constant", "load", "dispatched"]


def test_what_is_no_function_is_refused_with_what_it_is_and_goes_on_working(probe: Any, target: MakeTarget) -> None:
    before = {name: vars(Odd)[name] for name in ODD}
    probe.hook([target(f"Odd.{name}") for name in ODD], Odd=Odd)
    reasons = refusals(probe)
    assert {f"Odd.{name}" for name in ODD} == set(reasons)
    assert all(type(before[name]).__name__ in reasons[f"Odd.{name}"] for name in ODD)
    assert all(vars(Odd)[name] is value for name, value in before.items())


def test_a_cached_function_and_a_partial_of_the_module_are_hooked(probe: Any, target: MakeTarget) -> None:
    @functools.lru_cache
    def cached(size: int) -> object:
        return object()

    module = probe.hook([target("cached"), target("partial")], cached=cached, partial=functools.partial(int, base=2))
    assert module.cached(1) is module.cached(1) and module.partial("10") == 2
    assert kinds(probe) == BOTH * 3
    assert module.cached.cache_info().hits == 1


def test_a_class_written_in_c_is_refused(probe: Any, target: MakeTarget) -> None:
    probe.hook([target("OrderedDict.__init__")], OrderedDict=collections.OrderedDict)
    assert "TypeError" in refusals(probe)["OrderedDict.__init__"]
    assert collections.OrderedDict(a=1) == {"a": 1}


def test_a_function_written_in_c_is_hooked(probe: Any, target: MakeTarget) -> None:
    module = probe.hook([target("length")], length=len)
    assert (module.length([1]), kinds(probe)) == (1, BOTH)
    assert probe.states() == {"length": "applied"}


def test_an_abstract_method_stays_abstract(probe: Any, target: MakeTarget) -> None:
    class Base(abc.ABC):
        @abc.abstractmethod
        def load(self) -> int:
            return 7

    module = probe.hook([target("Base.load")], Base=Base)
    with pytest.raises(TypeError, match="abstract"):
        module.Base()
    with pytest.raises(TypeError, match="abstract"):
        type("Still", (Base,), {})()
    child = type("Child", (Base,), {"load": lambda self: super(type(self), self).load()})
    assert (child().load(), kinds(probe)) == (7, BOTH)


def test_constructors_that_call_each_other_nest(probe: Any, target: MakeTarget) -> None:
    class Base:
        def __init__(self, size: int) -> None:
            self.size = size

    class Middle(Base):
        pass

    class Child(Middle):
        def __init__(self, size: int, *, name: str = "") -> None:
            super().__init__(size=size)
            self.name = name

    module = probe.hook([target("Base.__init__"), target("Middle.__init__"), target("Child.__init__")], **locals())
    child = module.Child(3, name="x")
    assert (child.size, child.name, type(child)) == (3, "x", Child)
    assert [event["attributes"]["target"].rpartition(":")[2] for event in probe.memory()] == [
        "Child.__init__",
        "Base.__init__",
        "Base.__init__",
        "Child.__init__",
    ]


def test_a_class_whose_metaclass_builds_its_instances_is_hooked(probe: Any, target: MakeTarget) -> None:
    class Single(type):
        instances: ClassVar[dict[type, Any]] = {}

        def __call__(cls, *args: Any) -> Any:
            if cls not in Single.instances:
                Single.instances[cls] = super().__call__(*args)
            return Single.instances[cls]

    class Runner(metaclass=Single):
        def __init__(self, size: int) -> None:
            self.size = size

    module = probe.hook([target("Runner.__init__")], Runner=Runner)
    assert module.Runner(3) is module.Runner(4)
    assert kinds(probe) == BOTH


class Pickled:
    """Importable by its name, as a class of SGLang's is."""

    def __init__(self, size: int = 7, *, name: str = "") -> None:
        self.size = size

    def load(self, more: int = 0) -> int:
        return self.size + more

    @staticmethod
    def shared(size: int) -> int:
        return size

    @classmethod
    def named(cls) -> str:
        return cls.__name__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Pickled) and other.size == self.size

    __hash__ = None  # type: ignore[assignment]


PICKLED = ["__init__", "load", "shared", "named"]


@pytest.fixture
def pickled(probe: Any, target: MakeTarget) -> Iterator[type[Pickled]]:
    rows = [target(f"Pickled.{name}") for name in PICKLED]
    probe.hook(rows, Pickled=Pickled)
    yield Pickled
    probe.agent._hooks.remove()


WAYS: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "a bound method": (lambda cls: cls(8).load, 8),
    "a method of the class": (lambda cls: functools.partial(cls.load, cls(8)), 8),
    "a static method": (lambda cls: functools.partial(cls.shared, 8), 8),
    "a static method of an instance": (lambda cls: functools.partial(cls(1).shared, 8), 8),
    "a class method": (lambda cls: cls.named, "Pickled"),
    "a partial": (lambda cls: functools.partial(cls(8).load, more=1), 9),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("through", [lambda value: pickle.loads(pickle.dumps(value)), copy.copy, copy.deepcopy])
def test_a_hooked_method_travels_between_processes_and_copies_as_it_did(
    pickled: type[Pickled], probe: Any, way: str, through: Callable[[Any], Any]
) -> None:
    take, expected = WAYS[way]
    function = through(take(pickled))
    before = len(probe.memory())
    assert function() == expected
    assert kinds(probe)[before:] == BOTH  # and it is still hooked


def test_a_deep_copy_of_a_bound_method_belongs_to_a_copy_of_the_instance(pickled: type[Pickled]) -> None:
    instance = pickled(8)
    twin = copy.deepcopy(instance.load)
    instance.size = 9
    assert twin() == 8


def test_what_inspect_says_of_a_hooked_class_is_what_it_said(probe: Any, target: MakeTarget) -> None:
    def says() -> list[Any]:
        functions = [Pickled, Pickled.load, Pickled(1).load, Pickled.shared, Pickled.named, Pickled.__init__]
        asked: list[Callable[[Any], Any]] = [inspect.signature, inspect.getsource, inspect.ismethod, inspect.isfunction]
        static = [inspect.getattr_static(Pickled, name).__name__ for name in PICKLED]
        return [[ask(function) for ask in asked] for function in functions] + static

    before = says()
    probe.hook([target(f"Pickled.{name}") for name in PICKLED], Pickled=Pickled)
    try:
        assert says() == before
    finally:
        probe.agent._hooks.remove()
