"""A target read from files is what the agent finds in the loaded module: for every way to bind a name."""

from __future__ import annotations

import functools
import sys
import textwrap
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglang_probe.catalogue import resolve as resolving
from sglang_probe.catalogue.resolve import Row, homeless, homes, resolve
from sglang_probe.catalogue.sources import Source, from_tree
from sglang_probe.catalogue.targets import TARGETS, Target
from sglang_probe.events.fingerprint import fingerprint_node
from sglang_probe.events.names import ROLES
from tests.catalogue.live import Answers, answers, as_the_agent_says
from tests.catalogue.making import write_tree

FORMS = "sglang.srt.forms"


class Form(NamedTuple):
    """A way in which a module can bind a name."""

    text: str
    path: str = "Runner.load"
    state: str = "applied"
    unless: str = ""


DEFINED = "class Runner:\n    def load(self):\n        return 1\n"
HELPERS = """
import contextlib, functools
def wrapping(function):
    @functools.wraps(function)
    def inner(*args):
        return function(*args)
    return inner
def load(self=None):
    return "module"
"""
FORM: Mapping[str, Form] = {
    "function": Form("def load(a,\n         b):\n    # why\n    return a\n\n\n", "load"),
    "method": Form(DEFINED),
    "staticmethod": Form("class Runner:\n    @staticmethod\n    def load(size):\n        return size\n"),
    "classmethod": Form("class Runner:\n    @classmethod\n    def load(cls):\n        return cls\n"),
    "decorated": Form(
        HELPERS + "class Runner:\n    @wrapping\n    @wrapping\n    def load(self):\n        return (\n 1)\n"
    ),
    "cached": Form("import functools\n@functools.lru_cache(maxsize=None)\ndef load(a):\n    return a\n", "load"),
    "redefined": Form(DEFINED + "    def load(self, more):\n        return more\n"),
    "class redefined": Form(DEFINED + "class Runner:\n    def load(self):\n        return 2\n"),
    "overloads": Form(
        "import typing\nclass Runner:\n    @typing.overload\n    def load(self, a: int): ...\n"
        "    @typing.overload\n    def load(self, a: str): ...\n    def load(self, a):\n        return a\n"
    ),
    "in an if": Form("if True:\n" + textwrap.indent(DEFINED, "    ")),
    "in an else": Form("FLAG = len('')\nif FLAG:\n    pass\nelse:\n" + textwrap.indent(DEFINED, "    ")),
    "in a method's if": Form("class Runner:\n    if len('a'):\n        def load(self):\n            return 1\n"),
    "in a try": Form("try:\n" + textwrap.indent(DEFINED, "    ") + "except ImportError:\n    Runner = None\n"),
    "in an except": Form("try:\n    import nowhere_at_all\nexcept ImportError:\n" + textwrap.indent(DEFINED, "    ")),
    "in a with": Form("import contextlib\nwith contextlib.nullcontext():\n" + textwrap.indent(DEFINED, "    ")),
    "in a loop": Form("for _ in range(2):\n" + textwrap.indent(DEFINED, "    ")),
    "for the type checker alone": Form(
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    def load(): ...\n", "load", "absent"
    ),
    "imported": Form("from sglang.srt.common.inner import measure", "measure"),
    "imported under a name": Form("from sglang.srt.common.inner import measure as taken", "taken"),
    "imported relatively": Form("from ..common.inner import measure", "measure"),
    "imported through a package": Form("from sglang.srt.common import measure", "measure"),
    "imported by a star": Form("from sglang.srt.common import *", "measure"),
    "hidden from a star": Form("from sglang.srt.common import *", "_private", "absent"),
    "kept from a star by __all__": Form("from sglang.srt.common.listed import *", "unlisted", "absent"),
    "named to a star by __all__": Form("from sglang.srt.common.listed import *", "_listed"),
    "defined over a star": Form("from sglang.srt.common import *\ndef measure():\n    return 0\n", "measure"),
    "a star over a definition": Form("def measure():\n    return 0\nfrom sglang.srt.common import *\n", "measure"),
    "a class imported": Form("from sglang.srt.common.inner import Base", "Base.load"),
    "imported if it is there": Form(
        "try:\n    from sglang.srt.common.inner import measure\nexcept ImportError:\n    measure = None\n", "measure"
    ),
    "imported if it is there, and it is not": Form(
        "try:\n    from sglang.srt.nowhere import load\nexcept ImportError:\n    def load():\n        return 1\n",
        "load",
    ),
    "of somebody else": Form("from textwrap import dedent", "dedent"),
    "a module": Form("from sglang.srt.common import inner", "inner", "failed"),
    "a module by its full name": Form("import sglang.srt.common", "sglang", "failed"),
    "inherited": Form("from sglang.srt.common.inner import Base\nclass Runner(Base):\n    pass\n", state="absent"),
    "another class's": Form(DEFINED, "Walker.load", "absent"),
    "nested class": Form("class Outer:\n" + textwrap.indent(DEFINED, "    "), "Outer.Runner.load", "absent"),
    "assigned a function": Form(HELPERS + "taken = load", "taken"),
    "assigned from a decorator": Form(HELPERS + "load = wrapping(load)", "load"),
    "assigned from a decorator in its class": Form(HELPERS + DEFINED + "    load = wrapping(load)\n"),
    "imported and then assigned": Form(
        HELPERS + "from sglang.srt.common import measure\nmeasure = wrapping(measure)\n", "measure"
    ),
    "assigned none through a name": Form("NONE = None\nload = NONE\n", "load", "absent"),
    "assigned from a decorator of a decorator": Form(HELPERS + "taken = wrapping(functools.lru_cache(load))", "taken"),
    "assigned in a class": Form(HELPERS + "class Runner:\n    load = load\n"),
    "assigned another method": Form("class Runner:\n    def old(self):\n        return 1\n    load = old\n"),
    "assigned a staticmethod": Form(HELPERS + "class Runner:\n    load = staticmethod(load)\n"),
    "assigned a method of a class": Form(DEFINED + "taken = Runner.load", "taken"),
    "assigned with others": Form(HELPERS + "other, taken = len, load", "taken"),
    "assigned by a condition": Form(HELPERS + "taken = load if len('a') else None", "taken"),
    "annotated": Form(HELPERS + "taken: object = load", "taken"),
    "declared only": Form("load: object", "load", "absent"),
    "a partial": Form(HELPERS + "taken = functools.partial(load, 1)", "taken"),
    "a partial in a class": Form(
        HELPERS + "class Runner:\n    load = functools.partial(load, 1)\n",
        state="applied" if hasattr(functools.partial, "__get__") else "failed",
    ),
    "a partialmethod": Form(HELPERS + "class Runner:\n    load = functools.partialmethod(load, 1)\n", state="failed"),
    "none": Form("load = None", "load", "absent"),
    "none first": Form("load = None\nif len('a'):\n    def load():\n        return 1\n", "load"),
    "a number": Form("load = 7", "load", "failed"),
    "a list": Form("load = [len]", "load", "failed"),
    "deleted": Form("def load():\n    return 1\ndel load\n", "load", "absent"),
    "a class": Form("class load:\n    pass\n", "load", "failed"),
    "a property": Form("class Runner:\n    @property\n    def load(self):\n        return 1\n", state="failed"),
    "a property's setter": Form(
        "class Runner:\n    @property\n    def load(self):\n        return 1\n"
        "    @load.setter\n    def load(self, value):\n        pass\n",
        state="failed",
    ),
    "a cached property": Form(
        "import functools\nclass Runner:\n    @functools.cached_property\n    def load(self):\n        return 1\n",
        state="failed",
    ),
    "a property assigned": Form(HELPERS + "class Runner:\n    load = property(load)\n", state="failed"),
    "a generator": Form("def load():\n    yield 1\n", "load", "failed"),
    "a generator inside": Form("def load():\n    def inner():\n        yield 1\n    return list(inner())\n", "load"),
    "a lambda inside that yields": Form("def load():\n    return lambda: (yield)\n", "load"),
    "a context manager": Form(
        "import contextlib\n@contextlib.contextmanager\ndef load():\n    yield\n", "load", "failed"
    ),
    "a coroutine": Form("class Runner:\n    async def load(self):\n        return 1\n", state="failed"),
    "an asynchronous generator": Form("async def load():\n    yield 1\n", "load", "failed"),
    "nested by another": Form(
        DEFINED + "    def outer(self):\n        return self.load()\n", "Runner.load", "nested", "Runner.outer"
    ),
    "not nested where the other is not": Form(DEFINED, unless="Runner.outer"),
    "nested by another module's": Form(
        "from sglang.srt.common import inner\n" + DEFINED, "Runner.load", "nested", "sglang.srt.common.inner:measure"
    ),
    "with odd lines": Form("def load():\n    '''a\x0cb\u2028c\n\n    d'''\n    return '\\d'\n# end\n", "load"),
    "on one line": Form("def load(): return 1\n", "load"),
    "with Windows lines": Form(DEFINED.replace("\n", "\r\n")),
    "with a mark of its encoding": Form("\ufeff" + DEFINED),
    "indented with tabs": Form(DEFINED.replace("    ", "\t")),
}
COMMON = {
    "sglang/__init__.py": "",
    "sglang/srt/__init__.py": "",
    "sglang/srt/forms/__init__.py": "",
    "sglang/srt/common/__init__.py": "from .inner import *\n",
    "sglang/srt/common/inner.py": "def measure(device):\n    return device\ndef _private():\n    pass\n"
    "class Base:\n    def load(self):\n        return 'base'\n",
    "sglang/srt/common/listed.py": "__all__ = ['_listed']\ndef _listed():\n    return 1\ndef unlisted():\n    pass\n",
}


def module_of(name: str) -> str:
    return f"{FORMS}.{name.replace(' ', '_').replace(',', '').replace(chr(39), '')}"


def target_of(name: str) -> Target:
    form = FORM[name]
    return Target("weights.load", module_of(name), form.path, "weights.LOAD", "a test", unless=form.unless)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An SGLang with a module for every form."""
    forms = {f"{module_of(name).replace('.', '/')}.py": form.text.encode() for name, form in FORM.items()}
    return write_tree(tmp_path_factory.mktemp("forms"), {**COMMON, **forms})


@pytest.fixture(scope="module")
def live(tree: Path) -> Answers:
    """What the agent's own hooks say of each form, once its module is imported."""
    return answers([sys.executable], [target_of(name) for name in FORM], tree)


@pytest.mark.parametrize("name", FORM)
def test_files_and_the_live_module_give_the_same_answer(name: str, tree: Path, live: Answers) -> None:
    (row,) = resolve(from_tree(tree), [target_of(name)])
    assert FORM[name].state == as_the_agent_says(row)
    if name == "of somebody else":  # its body is in no file of SGLang's
        assert (row.fingerprint, row.reason) == (None, "imported from textwrap, which is not SGLang's")
        return
    assert live[target_of(name).name] == [as_the_agent_says(row), row.fingerprint]


@pytest.mark.parametrize("name", [name for name, form in FORM.items() if form.state in {"failed", "nested"}])
def test_what_is_not_hooked_says_why(name: str, tree: Path) -> None:
    (row,) = resolve(from_tree(tree), [target_of(name)])
    assert row.reason


def source_of(files: Mapping[str, bytes]) -> Source:
    return Source("made up", None, "tree", files.get)


def row_of(text: str | bytes, path: str = "load") -> Row:
    content = text if isinstance(text, bytes) else text.encode()
    (row,) = resolve(source_of({"sglang/a.py": content}), [Target("weights.load", "sglang.a", path, "", "a test")])
    return row


def test_a_module_that_is_not_there_leaves_its_targets_absent() -> None:
    (row,) = resolve(source_of({}), [target_of("method")])
    assert ("absent", "no such module") == (row.state, row.reason)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = 1\ndef load(:\n", "line 2"),
        (b"x = 1\0\n", "does not parse"),
        (b"\xff\n", "cannot be decoded"),
        ("x = " + "(" * 5000 + ")" * 5000, "does not parse"),
        ("x = " + "-" * 100_000 + "1", "sglang.a"),
    ],
)
def test_a_file_that_does_not_parse_fails_its_row_with_the_reason(text: str | bytes, said: str) -> None:
    row = row_of(text)
    assert "failed" == row.state
    assert row.reason and said in row.reason and "\n" not in row.reason


def test_a_file_on_the_way_to_the_definition_that_does_not_parse_fails_the_row() -> None:
    files = {"sglang/a.py": b"from sglang.b import *\n", "sglang/b.py": b"def (:\n"}
    (row,) = resolve(source_of(files), [Target("weights.load", "sglang.a", "load", "", "a test")])
    assert "failed" == row.state and row.reason and "sglang.b" in row.reason


@pytest.mark.parametrize(
    "how", ["from sglang.{} import load", "from sglang.{} import *", "from sglang.{} import load as x\nload = x"]
)
def test_modules_that_import_a_name_from_each_other_lead_nowhere(how: str) -> None:
    files = {"sglang/a.py": how.format("b").encode(), "sglang/b.py": how.format("a").encode()}
    (row,) = resolve(source_of(files), [Target("weights.load", "sglang.a", "load", "", "a test")])
    assert row.fingerprint is None


MANY = range(11)
TANGLED = {
    "stars": "from sglang.m{other} import *\n",
    "stars in try": "try:\n    from sglang.m{other} import *\nexcept ImportError:\n    pass\n",
    "stars under conditions": "if c{other}:\n    from sglang.m{other} import *\n",
    "names under conditions": "if c{other}:\n    from sglang.m{other} import load\n",
    "classes under conditions": "if c{other}:\n    from sglang.m{other} import Runner\n",
    "other names": "if c{other}:\n    from sglang.m{other} import load as x{other}\n    load = x{other}\n",
}


@pytest.mark.parametrize("path", ["load", "Runner.load"])
@pytest.mark.parametrize("how", TANGLED)
def test_modules_that_all_lead_to_one_another_hold_nobody(how: str, path: str) -> None:
    files = {
        f"sglang/m{one}.py": "".join(TANGLED[how].format(other=other) for other in MANY if other != one).encode()
        for one in MANY
    }
    targets = [Target("weights.load", f"sglang.m{one}", path, "", "a test") for one in MANY]
    began = time.thread_time()
    rows = resolve(source_of(files), targets)
    assert time.thread_time() - began < 10  # a moment, where every way through them would take hours
    assert {None} == {row.fingerprint for row in rows}
    assert all(row.reason for row in rows if row.state == "failed")


@pytest.mark.parametrize(("text", "path"), [("load = x0\n", "load"), ("class Runner:\n    load = x0\n", "Runner.load")])
def test_a_name_that_doubles_at_each_step_holds_nobody(text: str, path: str) -> None:
    steps = "".join(f"x{step} = x{step + 1} if c else x{step + 1}\n" for step in range(60))
    began = time.thread_time()
    row = row_of(steps + text, path)
    assert time.thread_time() - began < 10
    assert "failed" == row.state and row.reason and "lead to one another" in row.reason


def test_a_name_at_the_end_of_a_tangle_is_found() -> None:
    stars = {one: "".join(f"from sglang.m{other} import *\n" for other in MANY if other != one) for one in MANY}
    stars[MANY[-1]] += "def load(): return 1\n"
    files = {f"sglang/m{one}.py": text.encode() for one, text in stars.items()}
    (row,) = resolve(source_of(files), [Target("weights.load", "sglang.m0", "load", "", "a test")])
    assert row_of("def load(): return 1\n").fingerprint == row.fingerprint


def test_of_two_definitions_under_a_condition_the_first_is_taken() -> None:
    first, second = "def load():\n        return 1", "def load():\n        return 2"
    row = row_of(f"if cuda():\n    {first}\nelse:\n    {second}\n")
    assert (
        row.fingerprint
        == row_of(f"if True:\n    {first}\n").fingerprint
        != row_of(f"if 1:\n    {second}\n").fingerprint
    )


@given(
    st.binary() | st.text().map(str.encode) | st.sampled_from([form.text.encode() for form in FORM.values()]), st.data()
)
def test_whatever_a_file_holds_every_row_gets_a_state(content: bytes, data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(content)))
    torn = content[:cut] + data.draw(st.binary(max_size=3)) + content[cut:]
    row = row_of(torn, data.draw(st.sampled_from(["load", "Runner.load", "taken"])))
    assert row.state in {"applied", "absent", "nested", "unknown body", "failed"}
    assert (row.state == "failed") <= bool(row.reason)


def test_a_body_that_no_release_has_is_hooked_and_called_unknown() -> None:
    target = TARGETS[0]
    name = target.path.rpartition(".")[2]
    text = f"class {target.path.partition('.')[0]}:\n    def {name}(self):\n        return 'patched'\n"
    source = source_of({f"{target.module.replace('.', '/')}.py": text.encode()})
    rows = resolve(source)
    assert "unknown body" == rows[0].state
    assert target.role and [rows[0]] == homes(rows, target.role)
    assert [role for role in ROLES if role != target.role] == homeless(rows)


def test_a_body_that_is_known_is_applied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        resolving, "is_known", lambda target, body: body == row_of("def load(): return 1\n").fingerprint
    )
    assert ["applied", "unknown body"] == [row_of(f"def load(): return {n}\n").state for n in (1, 2)]


def test_the_fingerprint_is_that_of_the_function_the_name_leads_to() -> None:
    import ast

    text = "def inner():\n    return 1\n"
    (node,) = ast.parse(text).body
    assert isinstance(node, ast.FunctionDef)
    assert fingerprint_node(text.split("\n"), node) == row_of(text + "load = inner\n").fingerprint
