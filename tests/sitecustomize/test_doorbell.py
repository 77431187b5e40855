"""The doorbell, seen from outside: a Python is started with the checkout on PYTHONPATH and asked what happened."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOORBELL = ROOT / "sitecustomize" / "__init__.py"

ASK = """
import json, os, sys
print(json.dumps({
    "armed": any(type(f).__module__ == "sglang_probe.agent.finder" for f in sys.meta_path),
    "pythonpath": os.environ.get("PYTHONPATH"),
    "sitecustomize": sys.modules["sitecustomize"].__file__ if "sitecustomize" in sys.modules else None,
    "path": sys.path,
}))
"""

Start = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def start(tmp_path: Path) -> Start:
    """Start a Python with the doorbell on PYTHONPATH, first; `path` adds entries, `environ` variables."""

    def run(code: str = ASK, *, path: tuple[Path, ...] = (), **environ: str) -> subprocess.CompletedProcess[str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("SGLANG_PROBE", "PYTHON"))}
        pythonpath = os.pathsep.join(str(entry) for entry in (ROOT, *path))
        return subprocess.run(
            [sys.executable, "-c", code],
            env={**kept, "PYTHONPATH": pythonpath, **environ},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
        )

    return run


def users_sitecustomize(folder: Path, body: str) -> Path:
    folder.mkdir(parents=True)
    (folder / "sitecustomize.py").write_text(body)
    return folder


def answer(done: subprocess.CompletedProcess[str]) -> dict[str, object]:
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def test_it_has_at_most_sixty_lines() -> None:
    assert len(DOORBELL.read_text().splitlines()) <= 60


def test_it_imports_only_the_standard_library_and_the_agent() -> None:
    roots = set()
    for node in ast.walk(ast.parse(DOORBELL.read_text())):
        if isinstance(node, ast.Import):
            roots |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            roots.add(str(node.module).partition(".")[0])
    assert roots - {"sglang_probe"} <= set(sys.stdlib_module_names)


def test_it_arms_the_agent(start: Start) -> None:
    assert answer(start())["armed"] is True


def test_it_is_silent(start: Start) -> None:
    done = start("pass")
    assert (done.stdout, done.stderr) == ("", "")


def test_the_gate_turns_the_agent_off_and_nothing_else(start: Start, tmp_path: Path) -> None:
    users = users_sitecustomize(tmp_path / "users", "import sys; sys.users_ran = True")
    done = start(f"import sys; assert sys.users_ran; {ASK}", path=(users,), SGLANG_PROBE="0")
    assert answer(done)["armed"] is False


@pytest.mark.parametrize("value", ["1", "", "false", "00"])
def test_any_other_value_of_the_gate_leaves_it_on(start: Start, value: str) -> None:
    assert answer(start(SGLANG_PROBE=value))["armed"] is True


def test_a_process_that_never_imports_sglang_pays_for_no_third_party_import(start: Start) -> None:
    listing = "import sys; print(*sys.modules)"
    imported = set(start(listing).stdout.split()) - set(start(listing, PYTHONPATH="").stdout.split())
    assert "sglang_probe.agent.finder" in imported
    assert {name.partition(".")[0] for name in imported} <= {"sglang_probe", "sitecustomize", *sys.stdlib_module_names}
    assert {"typing", "dataclasses", "re", "logging", "importlib.util"} & imported == set()


def test_the_users_own_sitecustomize_runs_exactly_once_and_keeps_its_name(start: Start, tmp_path: Path) -> None:
    log = tmp_path / "log"
    users = users_sitecustomize(tmp_path / "users", f"open({str(log)!r}, 'a').write('ran ')")
    told = answer(start(f"import sitecustomize; {ASK}", path=(users,)))
    assert log.read_text() == "ran "
    assert told["sitecustomize"] == str(users / "sitecustomize.py")
    assert told["armed"] is True


def test_a_users_package_named_sitecustomize_runs_too(start: Start, tmp_path: Path) -> None:
    package = tmp_path / "users" / "sitecustomize"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("from sitecustomize import part")
    (package / "part.py").write_text("import sys; sys.users_ran = True")
    assert answer(start(f"import sys; assert sys.users_ran; {ASK}", path=(package.parent,)))["armed"] is True


def test_a_users_sitecustomize_that_raises_runs_once_and_is_reported_as_python_would(
    start: Start, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    body = f"open({str(log)!r}, 'a').write('ran ')\nraise ValueError('mine')"
    users = users_sitecustomize(tmp_path / "users", body)
    done = start(f"import sitecustomize; {ASK}", path=(users,))
    assert answer(done)["armed"] is True
    assert log.read_text() == "ran "
    assert done.stderr == "Error in sitecustomize; set PYTHONVERBOSE for traceback:\nValueError: mine\n"


def test_a_users_sitecustomize_that_ends_the_process_ends_it_as_it_would_without_us(
    start: Start, tmp_path: Path
) -> None:
    users = users_sitecustomize(tmp_path / "users", "raise SystemExit(7)")
    with_us, without_us = start(path=(users,)), start(PYTHONPATH=str(users))
    assert with_us.returncode == without_us.returncode != 0
    assert with_us.stderr.splitlines()[-1] == without_us.stderr.splitlines()[-1]


def test_sys_path_is_left_as_it_was(start: Start, tmp_path: Path) -> None:
    users = users_sitecustomize(tmp_path / "users", "")
    told = answer(start(path=(users,)))
    plain = answer(start(path=(users,), SGLANG_PROBE="0"))
    assert told["path"] == plain["path"]


def test_pythons_that_start_while_we_initialise_do_not_get_our_entry(start: Start, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    # One child only: without the guard it would run this very file, which would start one, and so on.
    body = (
        "import os, subprocess, sys\n"
        "if os.environ.setdefault('CHILDREN', 'none') == 'none':\n"
        "    os.environ['CHILDREN'] = 'one'\n"
        "    code = 'import os, sys; print(os.environ.get(\"PYTHONPATH\"), sys.path)'\n"
        "    done = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True, timeout=20)\n"
        f"    open({str(seen)!r}, 'w').write(done.stdout)\n"
    )
    users = users_sitecustomize(tmp_path / "users", body)
    told = answer(start(path=(users,)))
    assert seen.read_text() and f"'{ROOT}'" not in seen.read_text()
    assert seen.read_text().startswith(str(users))
    assert told["pythonpath"] == os.pathsep.join([str(ROOT), str(users)])


def test_what_the_users_sitecustomize_does_to_pythonpath_is_kept(start: Start, tmp_path: Path) -> None:
    body = "import os; os.environ['PYTHONPATH'] = os.environ['PYTHONPATH'] + os.pathsep + 'added'"
    users = users_sitecustomize(tmp_path / "users", body)
    assert answer(start(path=(users,)))["pythonpath"] == os.pathsep.join([str(ROOT), str(users), "added"])


def test_the_first_armed_process_exports_which_python_it_is(start: Start) -> None:
    this = "sys.prefix + os.pathsep + sys.implementation.cache_tag"
    code = f"import os, sys; print(os.environ['SGLANG_PROBE_PYTHON'] == {this})"
    assert start(code).stdout == "True\n"


@pytest.mark.parametrize(
    "reference",
    ["/another/prefix" + os.pathsep + str(sys.implementation.cache_tag), sys.prefix + os.pathsep + "cpython-39"],
)
def test_a_descendant_with_another_prefix_or_cache_tag_is_left_alone(start: Start, reference: str) -> None:
    told = answer(start(SGLANG_PROBE_PYTHON=reference))
    assert told["armed"] is False


def test_a_checkout_that_is_importable_but_not_on_pythonpath_arms_nothing(tmp_path: Path) -> None:
    # An editable install puts the checkout on sys.path of every Python of its environment.
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); import sitecustomize; {ASK}"
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("SGLANG_PROBE", "PYTHON"))}
    done = subprocess.run(
        [sys.executable, "-S", "-c", code], env=environ, cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert answer(done)["armed"] is False


def broken_copy(folder: Path) -> Path:
    """A checkout whose agent raises as it is imported."""
    (folder / "sitecustomize").mkdir(parents=True)
    (folder / "sitecustomize" / "__init__.py").write_text(DOORBELL.read_text())
    (folder / "sglang_probe" / "agent").mkdir(parents=True)
    for package in (folder / "sglang_probe", folder / "sglang_probe" / "agent"):
        (package / "__init__.py").write_text("")
    (folder / "sglang_probe" / "agent" / "finder.py").write_text("raise RuntimeError('broken')")
    return folder


def test_a_broken_agent_is_one_report_and_no_failure(start: Start, tmp_path: Path) -> None:
    done = start("print('host runs')", PYTHONPATH=str(broken_copy(tmp_path / "copy")))
    assert done.stdout == "host runs\n"
    assert "Error in sglang-probe" in done.stderr and "RuntimeError: broken" in done.stderr


@pytest.mark.parametrize("redirect", ["2>&-", "2>/dev/full"])
def test_nobody_to_tell_is_no_reason_to_fail(redirect: str, tmp_path: Path) -> None:
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("SGLANG_PROBE", "PYTHON"))}
    done = subprocess.run(
        f'"{sys.executable}" -c "print(1)" {redirect}',
        shell=True,
        env={**environ, "PYTHONPATH": str(broken_copy(tmp_path / "copy"))},
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (0, b"1\n")


def old_pythons() -> list[str]:
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = sorted(versions.glob("*/bin/python")) if versions.is_dir() else []
    return [str(python) for python in found if not python.parent.parent.name.startswith("3.1")]


@pytest.mark.parametrize("python", old_pythons() or [pytest.param("", marks=pytest.mark.skip("no older Python here"))])
def test_an_older_python_starts_unharmed(python: str, tmp_path: Path) -> None:
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("SGLANG_PROBE", "PYTHON"))}
    code = "import os, sys; print('SGLANG_PROBE_PYTHON' in os.environ or 'sglang_probe' in sys.modules)"
    done = subprocess.run(
        [python, "-B", "-c", code],
        env={**environ, "PYTHONPATH": str(ROOT)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "False\n", "")


def test_the_doorbell_parses_in_the_oldest_grammar_this_python_knows() -> None:
    ast.parse(DOORBELL.read_text(), feature_version=(3, 4))


def test_a_second_way_to_the_same_doorbell_still_leads_to_the_users_own(start: Start, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(ROOT)
    log = tmp_path / "log"
    users = users_sitecustomize(tmp_path / "users", f"open({str(log)!r}, 'a').write('ran ')")
    done = start(PYTHONPATH=os.pathsep.join([str(tmp_path / "link"), str(ROOT), str(users)]))
    assert answer(done)["armed"] is True
    assert (log.read_text(), done.stderr) == ("ran ", "")


def test_another_tool_that_chains_as_we_do_does_not_run_in_a_circle(start: Start, tmp_path: Path) -> None:
    log = tmp_path / "log"
    chains = (
        "import os, sys\n"
        f"open({str(log)!r}, 'a').write('tool ')\n"
        "from importlib.machinery import PathFinder\n"
        "here = os.path.dirname(os.path.abspath(__file__))\n"
        "spec = PathFinder.find_spec('sitecustomize', [p for p in sys.path if os.path.abspath(p) != here])\n"
        "spec.loader.load_module('sitecustomize')\n"
    )
    tool = users_sitecustomize(tmp_path / "tool", chains)
    users = users_sitecustomize(tmp_path / "users", f"open({str(log)!r}, 'a').write('users ')")
    done = start(path=(tool, users))
    assert answer(done)["armed"] is True
    assert log.read_text() == "tool users "


def test_a_user_who_takes_pythonpath_away_leaves_children_our_entry_alone(start: Start, tmp_path: Path) -> None:
    users = users_sitecustomize(tmp_path / "users", "import os; os.environ.pop('PYTHONPATH')")
    assert answer(start(path=(users,)))["pythonpath"] == str(ROOT)


def test_with_verbose_the_users_failure_comes_with_its_traceback(start: Start, tmp_path: Path) -> None:
    users = users_sitecustomize(tmp_path / "users", "raise ValueError('mine')")
    assert "Traceback" in start("pass", path=(users,), PYTHONVERBOSE="1").stderr


def test_where_pythonpath_does_not_name_us_it_stays_the_users(tmp_path: Path) -> None:
    body = "import os; os.environ['PYTHONPATH'] += os.pathsep + 'added'"
    users = users_sitecustomize(tmp_path / "users", body)
    code = f"import os, sys; sys.path.insert(0, {str(ROOT)!r}); import sitecustomize; print(os.environ['PYTHONPATH'])"
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("SGLANG_PROBE", "PYTHON"))}
    done = subprocess.run(
        [sys.executable, "-S", "-c", code],
        env={**environ, "PYTHONPATH": str(users)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout == os.pathsep.join([str(users), "added"]) + "\n"
