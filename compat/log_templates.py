"""The texts that a Python source logs, prints or raises, with a slot wherever a value goes in.

A text is an f-string, a `%` or `.format` format, or several of them added up, that is handed to a call that logs, to an
exception or to an assertion, directly or by way of a variable. A choice inside it makes two texts.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice, product
from typing import Final, NamedTuple, TypeAlias


class Slot(NamedTuple):
    """Where a value goes: the expression that has it, and the format that it is given."""

    expression: str
    spec: str = ""


Template: TypeAlias = tuple["str | Slot", ...]


class Said(NamedTuple):
    """One text of a source."""

    raised: bool
    """By an exception or an assertion; otherwise it is logged or printed."""
    template: Template

MOST_VARIANTS: Final = 24
"""Of one text: choices inside it multiply."""
_LOGS: Final = frozenset(
    (
        "debug", "info", "warning", "warning_once", "warn", "error", "exception", "critical", "log", "print", "write",
        "print_warning_once", "print_info_once", "info_once", "log_once", "log_info_on_rank0", "log_warning_on_rank0",
        "log_debug_on_rank0", "rank0_log", "rank0_print", "set_description", "set_description_str", "set_postfix_str",
        "tqdm",
    )
)
_PERCENT: Final = re.compile(r"%(?:\((?P<name>\w+)\))?(?P<spec>[-+ #0]*[\d*]*(?:\.\d+)?)(?P<kind>[sdifgrx%])")
_BRACES: Final = re.compile(r"\{(?P<name>[^{}:!]*)(?:![rsa])?(?::(?P<spec>[^{}]*))?\}")


def templates_of(source: str) -> Iterator[Said]:
    """Yield every text that `source` logs, prints or raises. Raises SyntaxError."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # escapes that SGLang does not spell as Python wants them
        tree = ast.parse(source)
    for scope, names in _scopes(tree):
        for node in _own(scope):
            raised = isinstance(node, ast.Assert) or _called(node).endswith(_RAISES)
            for text in _said(node):
                yield from (Said(raised, template) for template in _texts(text, names))


Names: TypeAlias = Mapping[str, list[ast.expr]]


def _scopes(tree: ast.Module) -> Iterator[tuple[ast.AST, Names]]:
    """Yield the module and every function with what is assigned to each name in it."""
    outer = _assigned(tree)
    for scope in ast.walk(tree):
        if isinstance(scope, (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef)):
            yield scope, {**outer, **_assigned(scope)}


def _own(scope: ast.AST) -> Iterator[ast.AST]:
    """Yield what is in a scope, and not in a function inside it."""
    todo = list(ast.iter_child_nodes(scope))
    while todo:
        node = todo.pop()
        yield node
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            todo.extend(ast.iter_child_nodes(node))


def _assigned(scope: ast.AST) -> dict[str, list[ast.expr]]:
    found: dict[str, list[ast.expr]] = defaultdict(list)
    for node in sorted(_own(scope), key=lambda one: getattr(one, "lineno", 0)):
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            found[node.targets[0].id].append(node.value)
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name) and found.get(node.target.id):
            name = node.target.id
            longer = [ast.BinOp(before, ast.Add(), node.value) for before in found[name]]
            found[name] = (longer + found[name])[:MOST_VARIANTS]  # it may stand under a condition
    return found


_RAISES: Final = ("Error", "Exception", "Exit")


def _called(node: ast.AST) -> str:
    if not isinstance(node, ast.Call):
        return ""
    return node.func.attr if isinstance(node.func, ast.Attribute) else str(getattr(node.func, "id", ""))


def _said(node: ast.AST) -> Iterator[ast.expr]:
    if isinstance(node, ast.Call):
        name = _called(node)
        if name in _LOGS or name.endswith(_RAISES):
            given = [one for one in node.args if not isinstance(one, ast.Starred)]
            given += [word.value for word in node.keywords if word.arg in {"desc", "msg", "message"}]
            for place, one in enumerate(given):
                if isinstance(one, ast.Constant) and isinstance(one.value, str) and "%" in one.value:
                    yield ast.BinOp(one, ast.Mod(), ast.Tuple(given[place + 1 :], ast.Load()))
                    return
                yield one
    elif isinstance(node, ast.Assert) and node.msg is not None:
        yield node.msg


def _texts(node: ast.expr, names: Names, depth: int = 0) -> list[Template]:
    """Return what a text expression can be; nothing for what is no text."""
    found = _parts(node, names, depth)
    return [_joined(one) for one in found[:MOST_VARIANTS] if any(isinstance(part, str) for part in one)]


def _parts(node: ast.expr, names: Names, depth: int) -> list[Template]:  # noqa: PLR0911  one return per kind of node
    if depth > 4:
        return [(Slot(ast.unparse(node)),)]
    if isinstance(node, ast.Constant):
        return [(str(node.value),)]
    if isinstance(node, ast.JoinedStr):
        each = [_value(part, names, depth) for part in node.values]
        return _products(each)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _products([_parts(node.left, names, depth + 0), _parts(node.right, names, depth)])
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
        values = node.right.elts if isinstance(node.right, ast.Tuple) else [node.right]
        return [
            tuple(part for piece in one for part in (_percent(piece, values) if isinstance(piece, str) else [piece]))
            for one in _parts(node.left, names, depth)
        ]
    if isinstance(node, ast.IfExp):
        return _parts(node.body, names, depth + 1) + _parts(node.orelse, names, depth + 1)
    if isinstance(node, ast.Name) and node.id in names:
        known = [one for one in names[node.id] if _is_text(one)]
        if known:
            return [text for one in known for text in _parts(one, names, depth + 1)]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if node.func.attr == "format" and isinstance(node.func.value, ast.Constant):
            return [tuple(_braces(str(node.func.value.value), node))]
        if node.func.attr == "join" and node.args and isinstance(node.args[0], (ast.List, ast.Tuple)):
            return _products([_parts(one, names, depth + 1) for one in node.args[0].elts])
    return [(Slot(ast.unparse(node)),)]


def _is_text(node: ast.expr) -> bool:
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str)
    if isinstance(node, ast.BinOp):
        return _is_text(node.left)
    if isinstance(node, ast.IfExp):
        return _is_text(node.body) or _is_text(node.orelse)
    return isinstance(node, ast.JoinedStr)


def _value(part: ast.expr, names: Names, depth: int) -> list[Template]:
    if not isinstance(part, ast.FormattedValue):
        return _parts(part, names, depth)
    spec = "".join(str(one.value) for one in getattr(part.format_spec, "values", []) if isinstance(one, ast.Constant))
    if not spec and (_is_text(part.value) or (isinstance(part.value, ast.Name) and part.value.id in names)):
        return _parts(part.value, names, depth + 1)
    return [(Slot(ast.unparse(part.value), "r" if part.conversion == ord("r") else spec),)]


def _products(each: Iterable[list[Template]]) -> list[Template]:
    return [tuple(part for piece in one for part in piece) for one in islice(product(*each), MOST_VARIANTS)]


def _percent(text: str, values: list[ast.expr]) -> Iterator[str | Slot]:
    at, given = 0, iter(values)
    for match in _PERCENT.finditer(text):
        yield text[at : match.start()]
        at = match.end()
        if match["kind"] == "%":
            yield "%"
            continue
        value = next(given, None)
        kind = "" if match["kind"] in "si" else match["kind"]
        yield Slot("" if value is None else ast.unparse(value), match["spec"] + kind if kind else "")
    yield text[at:]


def _braces(text: str, call: ast.Call) -> Iterator[str | Slot]:
    at, given = 0, iter(call.args)
    named = {word.arg: word.value for word in call.keywords}
    for match in _BRACES.finditer(text):
        yield text[at : match.start()]
        at = match.end()
        value = named.get(match["name"]) or next(given, None)
        yield Slot(match["name"] if value is None else ast.unparse(value), match["spec"] or "")
    yield text[at:]


def _joined(parts: Template) -> Template:
    """Return the same text with neighbouring pieces of it put together, and without empty ones."""
    found: list[str | Slot] = []
    for part in parts:
        if isinstance(part, str) and found and isinstance(found[-1], str):
            found[-1] += part
        elif part != "":
            found.append(part)
    return tuple(found)
