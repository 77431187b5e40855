"""Taking the hooks out puts back the very objects that stood there, and fights nobody who has wrapped them since."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import wrapt

from sglang_probe.catalogue.targets import Target
from tests.agent.conftest import Run, events, write_module

MakeTarget = Callable[..., Target]


class Runner:
    """Stands for a class of SGLang's."""

    def load(self, answer: Any = 7) -> Any:
        return answer

    @staticmethod
    def shared(size: int) -> int:
        return size

    @classmethod
    def named(cls) -> str:
        return cls.__name__


def function() -> int:
    return 7


def fresh() -> type[Runner]:
    """A class that no other test has hooked."""
    return type("Runner", (), dict(vars(Runner)))


PATHS = ["Runner.load", "Runner.shared", "Runner.named", "function"]


def test_the_original_objects_are_back_and_nothing_is_left(probe: Any, target: MakeTarget) -> None:
    cls = fresh()
    before = dict(vars(cls))
    module = probe.hook([target(path) for path in PATHS], Runner=cls, function=function, last=None)
    order = list(vars(module))
    assert all(vars(cls)[name] is not before[name] for name in ("load", "shared", "named"))
    assert set(probe.agent._hooks.remove().values()) == {None}
    assert module.function is function
    assert all(vars(cls)[name] is value for name, value in before.items())
    assert list(vars(module)) == order and list(vars(cls)) == list(before)
    assert probe.states() == dict.fromkeys(PATHS, "removed")


def test_a_child_that_inherits_has_no_attribute_of_its_own_before_or_after(probe: Any, target: MakeTarget) -> None:
    base = fresh()
    child = type("Child", (base,), {})
    names = list(vars(child))
    module = probe.hook([target("Runner.load"), target("Child.load")], Runner=base, Child=child)
    assert list(vars(module.Child)) == names
    probe.agent._hooks.remove()
    assert list(vars(module.Child)) == names


def test_no_event_is_written_once_the_hooks_are_out(probe: Any, target: MakeTarget) -> None:
    module = probe.hook([target("Runner.load"), target("function")], Runner=fresh(), function=function)
    early = module.function  # as a from-import takes it
    probe.agent._hooks.remove()
    assert (early(), module.function(), module.Runner().load(8)) == (7, 7, 8)
    assert probe.memory() == []


def test_a_tool_that_wrapped_the_hook_keeps_working_and_the_hook_passes_through(
    probe: Any, target: MakeTarget
) -> None:
    module = probe.hook([target("Runner.load"), target("function")], Runner=fresh(), function=function)
    seen: list[Any] = []

    def theirs(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        seen.append(args)
        return wrapped(*args, **kwargs)

    wrapt.wrap_function_wrapper(module, "Runner.load", theirs)
    on_top = vars(module.Runner)["load"]
    kept = probe.agent._hooks.remove()
    assert vars(module.Runner)["load"] is on_top
    assert (module.Runner().load(8), seen, probe.memory()) == (8, [(8,)], [])
    assert {name.partition(":")[2] for name, reason in kept.items() if reason is not None} == {"Runner.load"}
    assert any("another tool" in reason for reason in kept.values() if reason)
    with pytest.raises(TypeError, match="unexpected keyword"):
        module.Runner().load(wrong=1)


def test_a_place_that_another_tool_has_taken_is_left_to_it(probe: Any, target: MakeTarget) -> None:
    module = probe.hook([target("Runner.load")], Runner=fresh())
    theirs = module.Runner.load = lambda self: "theirs"
    assert list(probe.agent._hooks.remove().values()) == [None]
    assert vars(module.Runner)["load"] is theirs


def test_a_class_that_was_sealed_since_keeps_a_hook_that_passes_through(probe: Any, target: MakeTarget) -> None:
    class Seals(type):
        sealed = False

        def __setattr__(cls, name: str, value: Any) -> None:
            if cls.sealed:
                raise TypeError("sealed")
            super().__setattr__(name, value)

    module = probe.hook([target("Sealed.load")], Sealed=Seals("Sealed", (), {"load": Runner.load}))
    Seals.sealed = True
    (reason,) = probe.agent._hooks.remove().values()
    assert "TypeError: sealed" in reason
    assert (module.Sealed().load(8), probe.memory()) == (8, [])


def test_a_call_that_is_open_while_the_hooks_go_out_is_closed(probe: Any, target: MakeTarget) -> None:
    module = probe.hook([target("call")], call=lambda what: what())
    module.call(probe.agent._hooks.remove)
    assert [event["kind"] for event in probe.memory()] == ["begin", "end"]


def test_hooks_taken_out_can_be_put_in_again(probe: Any, target: MakeTarget) -> None:
    module = probe.hook([target("Runner.load"), target("function")], Runner=fresh(), function=function)
    kept = vars(module.Runner)["load"]
    module.Runner.load = lambda self: kept.__get__(self, type(self))()  # another tool's
    probe.agent._hooks.remove()
    probe.agent.hook(module)
    assert (module.Runner().load(), module.function()) == (7, 7)
    assert [event["kind"] for event in probe.memory()] == ["begin", "end"] * 2
    assert probe.agent._hooks.remove()  # and out again
    assert module.function is function


def test_threads_that_call_while_the_hooks_go_in_and_out_get_their_results(probe: Any, target: MakeTarget) -> None:
    module = probe.hook([target("Runner.load")], Runner=fresh())
    runner, stop, wrong = module.Runner(), threading.Event(), list[Any]()

    def call() -> None:
        while not stop.is_set():
            result = runner.load()
            if result != 7:
                wrong.append(result)

    threads = [threading.Thread(target=call) for _ in range(2)]
    for thread in threads:
        thread.start()
    for _ in range(20):
        probe.agent._hooks.remove()
        probe.agent.hook(module)
    stop.set()
    for thread in threads:
        thread.join()
    assert wrong == []
    spans = [(event["span"]["id"], event["kind"]) for event in probe.memory()]
    assert len(spans) == len(set(spans)) == 2 * len({span for span, _ in spans})


IMPORT = "from sglang.srt.managers import detokenizer_manager as module\n"
STATE = "print(type(vars(module.DetokenizerManager)['__init__']).__name__)\n"


def test_a_process_can_take_the_probe_out_and_put_it_in_again(run: Run, tmp_path: Path) -> None:
    code = f"""
import sys
from sglang_probe.agent.finder import arm, unhook
{IMPORT}{STATE}
print(unhook(), any(type(f).__module__ == "sglang_probe.agent.finder" for f in sys.meta_path))
{STATE}
arm()
{STATE}
"""
    done = run(code)
    name = "sglang.srt.managers.detokenizer_manager:DetokenizerManager.__init__"
    told = ["Hook", f"{ {name: None} } False", "function", "Hook"]
    assert (done.stdout.splitlines(), done.stderr) == (told, "")
    states = [e["attributes"]["state"] for e in events(tmp_path) if e["event"] == "sglang.probe.target"]
    assert states == ["applied", "removed", "applied"]


def test_a_module_that_is_being_loaded_while_the_probe_goes_out_is_not_hooked(run: Run, tmp_path: Path) -> None:
    manager = write_module(tmp_path, "sglang.srt.managers.detokenizer_manager", "")
    manager.write_text(
        "from sglang_probe.agent.finder import unhook\nunhook()\n"
        "class DetokenizerManager:\n    def __init__(self): ...\n"
    )
    done = run(IMPORT + STATE)
    assert (done.stdout, done.stderr) == ("function\n", "")


def test_taking_out_what_was_never_in_starts_no_agent(run: Run, tmp_path: Path) -> None:
    done = run("import sys; from sglang_probe.agent.finder import unhook; print(unhook(), 'wrapt' in sys.modules)")
    assert (done.stdout, done.stderr) == ("{} False\n", "")
    assert not (tmp_path / "runs").exists()
