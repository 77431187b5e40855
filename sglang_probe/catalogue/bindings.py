"""What a module or class binds to its names, read from its syntax tree, in the order in which it would run.

A name may be bound under a condition that only the running process can answer (`if is_cuda(): ... else: ...`, an
optional import): then it has several candidates, the first of which is taken to be the common one.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

STAR = "*"


@dataclass(frozen=True, slots=True)
class Imported:
    """`from module import name`; the name is `*` for all, empty for the module itself."""

    module: str
    name: str


What: TypeAlias = "ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.expr | Imported | None"
"""What a name is bound to; None where it is deleted."""


@dataclass(frozen=True, slots=True)
class Binding:
    """One binding of a name; `sure` where it runs whatever the conditions are."""

    name: str
    what: What
    sure: bool


def bindings(body: Sequence[ast.stmt], package: str, sure: bool = True) -> Iterator[Binding]:
    """Yield the bindings of a module's or class's body; `package` is what its relative imports start from."""
    for statement in body:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield Binding(statement.name, statement, sure)
        elif isinstance(statement, ast.ImportFrom):
            module = absolute(statement.module or "", statement.level, package)
            yield from (Binding(one.asname or one.name, Imported(module, one.name), sure) for one in statement.names)
        elif isinstance(statement, ast.Import):
            yield from (_import(one, sure) for one in statement.names)
        elif isinstance(statement, ast.Assign | ast.AnnAssign | ast.AugAssign | ast.Delete):
            yield from _assigned(statement, sure)
        else:
            yield from _inside(statement, package, sure)


def absolute(module: str, level: int, package: str) -> str:
    """Return the dotted name that `from {level dots}module` means inside `package`.

    >>> absolute("common", 1, "sglang.srt.utils"), absolute("sglang.srt", 0, "sglang.srt.utils")
    ('sglang.srt.utils.common', 'sglang.srt')
    """
    if not level:
        return module
    base = package.split(".")[: len(package.split(".")) - level + 1]
    return ".".join([*base, *([module] if module else [])])


def _import(alias: ast.alias, sure: bool) -> Binding:
    if alias.asname:
        return Binding(alias.asname, Imported(alias.name, ""), sure)
    top = alias.name.partition(".")[0]
    return Binding(top, Imported(top, ""), sure)


def _assigned(statement: ast.Assign | ast.AnnAssign | ast.AugAssign | ast.Delete, sure: bool) -> Iterator[Binding]:
    if isinstance(statement, ast.Delete):
        yield from (Binding(name.id, None, sure) for name in statement.targets if isinstance(name, ast.Name))
    elif isinstance(statement, ast.Assign):
        names = (name for target in statement.targets for name in _pairs(target, statement.value))
        yield from (Binding(name, value, sure) for name, value in names)
    elif statement.value is not None and isinstance(statement.target, ast.Name):
        yield Binding(statement.target.id, statement.value, sure)


def _pairs(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    """`a = x`, and `a, b = x, y` element by element."""
    if isinstance(target, ast.Name):
        yield target.id, value
    elif isinstance(target, ast.Tuple | ast.List):
        values = value.elts if isinstance(value, ast.Tuple | ast.List) else []
        whole = len(values) == len(target.elts)
        for position, element in enumerate(target.elts):
            yield from _pairs(element, values[position] if whole else value)


def _inside(statement: ast.stmt, package: str, sure: bool) -> Iterator[Binding]:
    """Yield what a compound statement binds in the scope around it."""
    if isinstance(statement, ast.If):
        verdict = _decided(statement.test)
        if verdict is not False:
            yield from bindings(statement.body, package, sure and verdict is True)
        if verdict is not True:
            yield from bindings(statement.orelse, package, sure and verdict is False)
    elif isinstance(statement, ast.With | ast.AsyncWith):
        yield from bindings(statement.body, package, sure)
    elif isinstance(statement, ast.For | ast.AsyncFor | ast.While):
        yield from bindings([*statement.body, *statement.orelse], package, sure=False)
    elif isinstance(statement, ast.Match):
        yield from (one for case in statement.cases for one in bindings(case.body, package, sure=False))
    elif isinstance(statement, _TRY):
        yield from bindings(statement.body, package, sure)
        yield from (one for handler in statement.handlers for one in bindings(handler.body, package, sure=False))
        yield from bindings([*statement.orelse, *statement.finalbody], package, sure)


_TRY = (ast.Try, getattr(ast, "TryStar", ast.Try))


def _decided(test: ast.expr) -> bool | None:
    """Answer the conditions that are the same in every process: `TYPE_CHECKING`, a constant; else None."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        inner = _decided(test.operand)
        return None if inner is None else not inner
    if isinstance(test, ast.Constant):
        return bool(test.value)
    name = test.attr if isinstance(test, ast.Attribute) else test.id if isinstance(test, ast.Name) else ""
    return False if name == "TYPE_CHECKING" else None


def standing(found: Iterable[Binding]) -> list[Binding]:
    """Return those of one name's bindings, in order, that may be in force: what is before a sure one is gone."""
    left: list[Binding] = []
    for binding in found:
        left = [binding] if binding.sure else [*left, binding]
    return left
