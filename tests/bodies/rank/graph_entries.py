"""The graph entries. Their module needs a GPU's worth of packages, so the real functions are taken out of its file.

Each function is the release's own source, compiled from the release's own file at its own lines; it is put on a class
of its own name in a module of its own name, and that module is given to the probe as if it had just been imported. What
the functions use of their module is the file's own functions, classes and constants as far as they reach each other,
real names of the standard library, or a stand-in.
"""

from __future__ import annotations
import __future__

import ast
import builtins
import collections
import contextlib
import dataclasses
import functools
import logging
import sys
import time
import types
from pathlib import Path
from typing import Any

import msgspec
import torch

from tests.bodies.rank.graph_runners import RUNNERS, EagerRunner, Given, Open, Runner, answers, model_runner_of
from tests.bodies.rank.loading import Thing, provide

RUNNER = "sglang.srt.model_executor.model_runner"
SETUP = "sglang.srt.model_executor.model_runner_components.cuda_graph_setup"


def run_draft(package: Path, *, module: str, cls: str, off: bool = False) -> Any:
    """Call `init_cuda_graphs` of a draft worker's class."""
    loaded_module = _module(package, module, None, cls)
    vars(loaded_module).update(answers(off))
    worker = model_runner_of(getattr(loaded_module, cls), off, True)
    vars(worker).update(_specialized_graph_memory_usage={}, _specialized_graph_time_usage={}, speculative_num_steps=3)
    vars(worker).update(target_worker=Open(device="cuda"), draft_runner=Open(canary_manager=None))
    worker.init_cuda_graphs()
    return worker


def run_pool(package: Path, enabled: bool) -> Any:
    """Call `prealloc_symmetric_memory_pool`, in the releases in which it is a method."""
    module = _module(package, RUNNER, None)
    vars(module).update(
        use_symmetric_memory=lambda _: contextlib.nullcontext(), envs=sys.modules["sglang.srt.environ"].envs
    )
    runner = model_runner_of(module.ModelRunner, False, False)
    runner.server_args.enable_symm_mem = enabled
    runner.device = str(torch.device("cuda", torch.cuda.current_device()))
    runner.prealloc_symmetric_memory_pool()
    return runner


def run(package: Path, *, entry: str, off: bool = False, draft: bool = False) -> Any:
    """Call one entry: `Class.method` of the model runner's module, or a function of the set-up's."""
    setup = _module(package, SETUP, None) if _file(package, SETUP).exists() else None
    runner = _module(package, RUNNER, setup)
    model_runner = model_runner_of(runner.ModelRunner, off, draft)
    for module in (setup, runner):
        if module is not None:
            vars(module).update(answers(off))
    for name, cls in RUNNERS.items():
        provide(f"sglang.srt.model_executor.{name}", **{cls.__name__: cls})
    if "." in entry:
        getattr(model_runner, entry.partition(".")[2])()
    else:
        wanted = _parameters(package, entry)
        words = {"model_runner": model_runner, "eager_runner": EagerRunner()}
        model_runner.result = getattr(setup, entry)(**{name: words[name] for name in wanted if name in words})
    return model_runner


def _file(package: Path, module: str) -> Path:
    return package.joinpath(*module.split(".")[1:]).with_suffix(".py")


@functools.cache
def _tree(file: Path) -> ast.Module:
    return ast.parse(file.read_text())


def _parameters(package: Path, function: str) -> list[str]:
    tree = _tree(_file(package, SETUP))
    (node,) = (one for one in tree.body if isinstance(one, ast.FunctionDef) and one.name == function)
    return [argument.arg for argument in (*node.args.args, *node.args.kwonlyargs)]


WANTED = {
    "init_cuda_graphs",
    "init_device_graphs",
    "init_decode_cuda_graph",
    "init_prefill_cuda_graph",
    "init_piecewise_cuda_graphs",
    "capture_decode_graph",
    "capture_prefill_graph",
    "capture_cuda_graphs",
    "_capture_cuda_graphs",
    "prealloc_symmetric_memory_pool",
}


def _module(package: Path, name: str, setup: Any, cls: str = "ModelRunner") -> Any:
    """Return a module of that name which holds the real functions, hooked by the probe as after an import."""
    file = _file(package, name)
    tree = _tree(file)
    methods = [
        node
        for one in tree.body
        if isinstance(one, ast.ClassDef) and one.name == cls
        for node in one.body
        if isinstance(node, ast.FunctionDef) and node.name in WANTED
    ]
    own = _own(tree)
    functions = [node for name, node in own.items() if name in WANTED]
    reached = _reached([*methods, *functions], own)
    module = types.ModuleType(name)
    module.__file__ = str(file)
    names = {node.id for top in (*methods, *reached) for node in ast.walk(top) if isinstance(node, ast.Name)}
    known = {
        "time": time,
        "logging": logging,
        "dataclass": dataclasses.dataclass,
        "defaultdict": collections.defaultdict,
        "torch": torch,
        "msgspec": msgspec,
        "Any": Any,
        "Optional": Any,
        "logger": logging.getLogger(name),
    }
    runners = {one: type(one, (Runner,), {}) for one in names if one.endswith("GraphRunner")}
    runners |= {
        one: type(one, (), {}) for one in names if one.endswith("Backend") and one != "Backend"
    }  # for isinstance
    vars(module).update(
        {one: known.get(one) or runners.get(one) or Thing(one) for one in names if not hasattr(builtins, one)}
    )
    vars(module)["logger"] = known["logger"]
    if setup is not None:
        vars(module).update(
            {one: vars(setup)[one] for one in names if isinstance(vars(setup).get(one), types.FunctionType | type)}
        )
        vars(module).update({one: vars(setup)[one] for one in WANTED & vars(setup).keys()})
    _execute(module, reached, file, vars(module))
    body: dict[str, Any] = {}
    _execute(module, methods, file, body)
    if body or name == RUNNER:
        for function in body.values():
            function.__qualname__ = f"{cls}.{function.__name__}"
        vars(module)[cls] = type(cls, (Given,), {"__module__": name, **body})
    sys.modules[name] = module
    from sglang_probe.agent.finder import loaded

    loaded(module)
    return module


def _own(tree: ast.Module) -> dict[str, Any]:
    """Return the functions, classes and plain constants of a file by name."""
    own: dict[str, Any] = {node.name: node for node in tree.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    for node in tree.body:
        plain = isinstance(node, ast.Assign) and not any(isinstance(part, ast.Call) for part in ast.walk(node.value))
        if isinstance(node, ast.Assign) and plain and isinstance(node.targets[0], ast.Name):
            own[node.targets[0].id] = node
    return own


def _reached(roots: list[Any], own: dict[str, Any]) -> list[Any]:
    """Return the functions and plain classes of the file that the roots lead to, except those a case answers for."""
    found: dict[str, Any] = {name: node for name, node in own.items() if any(node is root for root in roots)}
    queue = list(roots)
    while queue:
        for node in ast.walk(queue.pop()):
            name = node.id if isinstance(node, ast.Name) else None
            if name in own and name not in found and name not in ("ModelRunner", *answers(False)):
                found[name] = own[name]
                queue.append(own[name])
    return sorted(found.values(), key=lambda node: int(node.lineno))


def _execute(module: types.ModuleType, nodes: list[Any], file: Path, into: dict[str, Any]) -> None:
    # Annotations are not looked up: most name types that are not there.
    code = compile(
        ast.Module(body=nodes, type_ignores=[]), str(file), "exec", flags=__future__.annotations.compiler_flag
    )
    exec(code, vars(module), into)
