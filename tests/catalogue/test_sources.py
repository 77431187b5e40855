"""An SGLang is found and read as files, wherever it lies, and nothing of it is imported."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import json
import os
import sys
from pathlib import Path

import pytest

from sglang_probe.catalogue import sources, wheels
from sglang_probe.catalogue.errors import SourceError, Unreadable
from sglang_probe.catalogue.sources import Source, open_source
from tests.catalogue.making import FILES, RUNNER, write_tree, write_wheel

MODULE = "sglang.srt.model_executor.model_runner"


@pytest.fixture(autouse=True)
def _own_wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep wheels in a new place, and let pip see an index that is a directory of the test's alone."""
    (tmp_path / "index").mkdir()
    monkeypatch.setenv("SGLANG_PROBE_WHEELS", str(tmp_path / "kept"))
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "index"))


def is_the_made_up_one(source: Source) -> bool:
    found = source.module(MODULE)
    return found is not None and found.text == FILES[RUNNER]


@pytest.mark.parametrize("inside", ["python", ".", "site-packages"])
def test_a_checkout_a_package_and_a_directory_that_holds_it_are_read(tmp_path: Path, inside: str) -> None:
    root = tmp_path / "any"
    write_tree(root / inside)
    named = root / inside if inside == "site-packages" else root
    source = open_source(str(named))
    assert is_the_made_up_one(source)
    assert (source.path, source.version) == (str(named / ("python/sglang" if inside == "python" else "sglang")), None)


def test_the_package_itself_may_have_another_name(tmp_path: Path) -> None:
    (write_tree(tmp_path) / "sglang").rename(tmp_path / "patched")
    assert is_the_made_up_one(open_source(str(tmp_path / "patched")))


def test_a_path_may_be_relative(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(write_tree(tmp_path))
    assert is_the_made_up_one(open_source("."))


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("sglang/version.py", '__version__ = "1.2.3"\n'),
        ("sglang/_version.py", "TYPE_CHECKING = False\n__version__: str\n__version__ = version = '1.2.3'\n"),
        ("sglang/_version.py", "__version__: str = version = '1.2.3'\n"),
        ("PKG-INFO", "Metadata-Version: 2.1\nName: sglang\nVersion: 1.2.3\n"),
        ("sglang-1.2.3.dist-info/METADATA", "Metadata-Version: 2.1\nName: sglang\nVersion: 1.2.3\n"),
    ],
)
def test_a_tree_says_its_version_in_one_of_several_files(tmp_path: Path, file: str, text: str) -> None:
    assert "1.2.3" == open_source(str(write_tree(tmp_path, {**FILES, file: text}))).version


def test_a_fall_back_inside_the_version_file_is_not_taken_for_the_version(tmp_path: Path) -> None:
    text = "try:\n    from sglang._version import __version__\nexcept ImportError:\n    __version__ = '0.0.0.dev0'\n"
    assert open_source(str(write_tree(tmp_path, {**FILES, "sglang/version.py": text}))).version is None


def test_a_wheel_is_read_where_it_lies(tmp_path: Path) -> None:
    wheel = write_wheel(tmp_path, "1.2.3")
    source = open_source(str(wheel))
    assert is_the_made_up_one(source)
    assert ("1.2.3", str(wheel), "wheel") == (source.version, source.path, source.kind)


def test_a_module_that_is_a_package_is_told_from_one_that_is_a_file(tmp_path: Path) -> None:
    source = open_source(str(write_tree(tmp_path)))
    package, module = source.module("sglang.srt"), source.module(MODULE)
    assert package and module
    assert (True, False) == (package.is_package, module.is_package)
    assert source.module("sglang.srt.nowhere") is None


def test_a_version_is_the_wheel_that_is_kept_and_pip_is_not_asked(tmp_path: Path) -> None:
    wheel = write_wheel(tmp_path / "kept", "1.2.3", tag="cp399-cp399-manylinux_2_34_riscv64")
    assert str(wheel) == open_source("1.2.3").path


@pytest.mark.parametrize(
    "tag", ["py3-none-any", "cp311-cp311-manylinux_2_34_x86_64", "cp313-cp313-manylinux_2_17_x86_64"]
)
def test_a_version_that_is_not_kept_is_downloaded_whatever_python_it_is_for(tmp_path: Path, tag: str) -> None:
    write_wheel(tmp_path / "index", "1.2.3", tag=tag)
    said: list[str] = []
    source = open_source("v1.2.3", said.append)
    assert is_the_made_up_one(source)
    assert [f"sglang-1.2.3-{tag}.whl"] == [path.name for path in (tmp_path / "kept").iterdir()]
    assert 1 == len(said) and "1.2.3" in said[0]
    assert open_source("1.2.3", said.append).path == source.path
    assert 1 == len(said)


def test_a_version_of_another_number_that_begins_alike_is_not_taken(tmp_path: Path) -> None:
    write_wheel(tmp_path / "kept", "1.2.3.post1")
    assert wheels.kept_wheel("1.2.3") is None


@pytest.mark.parametrize("version", ["1.2.3", "9.9.9.post9"])
def test_a_version_that_is_nowhere_is_named(version: str) -> None:
    with pytest.raises(SourceError, match=rf"'{version}'.* name a wheel"):
        open_source(version)


def test_a_directory_for_wheels_that_cannot_be_made_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("SGLANG_PROBE_WHEELS", str(tmp_path / "file" / "below"))
    with pytest.raises(SourceError, match=r"file/below.*SGLANG_PROBE_WHEELS"):
        open_source("1.2.3")


def test_the_index_lists_releases_of_every_python_and_no_pre_release(tmp_path: Path) -> None:
    write_wheel(tmp_path / "index", "1.2.3")
    write_wheel(tmp_path / "index", "1.2.4", tag="cp313-cp313-manylinux_2_34_x86_64")
    write_wheel(tmp_path / "index", "1.3.0rc1")
    assert {"1.2.3", "1.2.4"} == set(wheels.index_versions())


def test_an_index_without_sglang_is_said() -> None:
    with pytest.raises(SourceError, match="lists no version of SGLang"):
        wheels.index_versions()


@pytest.mark.parametrize(
    ("named", "said"),
    [
        ("nowhere", "there is no such path: 'nowhere'"),
        ("no\0name", "cannot be looked at|there is no such path"),
        ("a" * 300, "cannot be looked at"),
        ("", "there is no such path"),
        ("/dev/null", "neither a wheel nor a directory"),
        ("empty", "neither sglang/srt"),
        ("text.whl", "cannot be read as a wheel"),
        ("cut.whl", "cannot be read as a wheel"),
        ("other.whl", "holds no sglang/srt"),
    ],
)
def test_what_is_no_sglang_is_named_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "text.whl").write_text("no zip")
    whole = write_wheel(tmp_path / "w", "1.2.3").read_bytes()
    (tmp_path / "cut.whl").write_bytes(whole[: len(whole) // 2])
    write_wheel(tmp_path / "w", "2", {"other.py": ""}).rename(tmp_path / "other.whl")
    write_tree(tmp_path)
    with pytest.raises(SourceError, match=said) as refused:
        open_source(named)
    assert "\n" not in str(refused.value)


def test_a_damaged_file_in_a_wheel_is_unreadable_and_the_others_are_not(tmp_path: Path) -> None:
    wheel = write_wheel(tmp_path, "1.2.3")
    content = wheel.read_bytes()
    wheel.write_bytes(content.replace(b"def load_model", b"def l0ad_model"))
    source = open_source(str(wheel))
    with pytest.raises(Unreadable, match=r"model_runner\.py is damaged"):
        source.module(MODULE)
    assert source.module("sglang.srt.managers.scheduler") is not None


@pytest.mark.parametrize("text", [b"x = '\xff'\n", b"# coding: nothing\n"])
def test_a_file_that_is_no_text_is_unreadable(tmp_path: Path, text: bytes) -> None:
    with pytest.raises(Unreadable, match="cannot be decoded"):
        open_source(str(write_tree(tmp_path, {**FILES, RUNNER: text}))).module(MODULE)


def test_a_file_that_unpacks_to_more_than_any_module_has_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "LARGEST_FILE", 10)
    for named in (write_wheel(tmp_path / "w", "1.2.3"), write_tree(tmp_path)):
        with pytest.raises(Unreadable, match="bytes"):
            open_source(str(named)).module(MODULE)


def test_no_file_is_read_that_is_several_times_the_largest_module(tmp_path: Path) -> None:
    root = write_tree(tmp_path, {**FILES, RUNNER: b"x=1\n" * (1 << 20)})
    with pytest.raises(Unreadable, match="bytes"):
        open_source(str(root)).module(MODULE)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every file")
def test_a_file_that_this_user_may_not_read_is_unreadable(tmp_path: Path) -> None:
    root = write_tree(tmp_path)
    (root / RUNNER).chmod(0)
    with pytest.raises(Unreadable, match="cannot be read"):
        open_source(str(root)).module(MODULE)


def test_a_pipe_in_a_tree_is_no_file_of_its(tmp_path: Path) -> None:
    root = write_tree(tmp_path)
    (root / RUNNER).unlink()
    os.mkfifo(root / RUNNER)
    assert open_source(str(root)).module(MODULE) is None


@pytest.fixture
def _no_sglang_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    if "sglang" in sys.modules or importlib.util.find_spec("sglang") is not None:
        pytest.skip("this environment has an SGLang of its own")


@pytest.mark.usefixtures("_no_sglang_yet")
@pytest.mark.parametrize("named", [None, "installed"])
def test_what_is_installed_is_found_and_not_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str | None
) -> None:
    site = write_tree(tmp_path, {**FILES, "sglang-1.2.3.dist-info/METADATA": "Name: sglang\nVersion: 1.2.3\n"})
    monkeypatch.syspath_prepend(site)
    source = open_source(named)
    assert is_the_made_up_one(source)
    assert ("1.2.3", "installed") == (source.version, source.kind)
    assert "sglang" not in sys.modules


@pytest.mark.usefixtures("_no_sglang_yet")
def test_an_editable_install_is_found_through_its_finder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = write_tree(tmp_path / "checkout" / "python") / "sglang"

    class Finder:
        """What an editable install puts on the meta path."""

        def find_spec(self, name: str, path: object = None, target: object = None) -> object:
            if name != "sglang":
                return None
            return importlib.util.spec_from_file_location(
                name, package / "__init__.py", submodule_search_locations=[str(package)]
            )

    info = {"sglang-1.2.3.dist-info/METADATA": "Metadata-Version: 2.1\nName: sglang\nVersion: 1.2.3\n"}
    monkeypatch.syspath_prepend(write_tree(tmp_path / "site", info))
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Finder()])
    source = open_source()
    assert is_the_made_up_one(source)
    assert ("1.2.3", str(package)) == (source.version, source.path)


@pytest.mark.usefixtures("_no_sglang_yet")
def test_an_environment_without_sglang_is_said_with_what_to_do() -> None:
    with pytest.raises(SourceError, match=r"none is installed in .*--sglang VERSION"):
        open_source()


@pytest.mark.usefixtures("_no_sglang_yet")
def test_a_directory_of_that_name_that_is_no_sglang_is_not_taken_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sglang").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(SourceError, match="holds no srt"):
        open_source()


@pytest.mark.usefixtures("_no_sglang_yet")
def test_a_module_without_a_spec_in_the_way_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    module = importlib.util.module_from_spec(importlib.machinery.ModuleSpec("sglang", None))
    module.__spec__ = None
    monkeypatch.setitem(sys.modules, "sglang", module)
    with pytest.raises(SourceError, match="cannot be found"):
        open_source()


SITE = "lib/python3.11/site-packages"
METADATA = {"sglang-1.2.3.dist-info/METADATA": "Metadata-Version: 2.1\nName: sglang\nVersion: 1.2.3\n"}


def make_environment(root: Path, site: str = SITE) -> Path:
    """An environment whose Python is a link to nowhere here, as in one that was mounted: it cannot be run."""
    (root / "bin").mkdir(parents=True)
    (root / "bin" / "python").symlink_to("/nowhere/python3.11")
    (root / "pyvenv.cfg").write_text("home = /nowhere\ninclude-system-site-packages = false\n")
    (root / site).mkdir(parents=True)
    return root / site


@pytest.mark.parametrize("named", [".", "bin/python", SITE])
@pytest.mark.parametrize("at", [SITE, "lib/python3.10/dist-packages"])
def test_an_environment_is_named_by_its_root_or_its_python(tmp_path: Path, named: str, at: str) -> None:
    site = make_environment(tmp_path / "venv", at)
    write_tree(site, {**FILES, **METADATA})
    asked = tmp_path / "venv" / (at if named == SITE else named)
    if named == "bin/python" and "3.11" not in at:
        asked.unlink()
        asked.symlink_to("/nowhere/python3")
    source = open_source(str(asked))
    assert is_the_made_up_one(source)
    assert (str(site / "sglang"), "1.2.3") == (source.path, source.version)


@pytest.mark.parametrize("by", ["direct_url", "pth"])
@pytest.mark.parametrize("inside", ["", "python"])
def test_an_editable_install_of_an_environment_is_found_through_its_links(tmp_path: Path, by: str, inside: str) -> None:
    site = make_environment(tmp_path / "venv")
    checkout = tmp_path / "a checkout"
    package = write_tree(checkout / inside) / "sglang"
    write_tree(site, METADATA)
    if by == "pth":
        (site / "other.pth").write_text(f"# sglang\nimport os\n\n{package.parent}\n")
    else:
        url = json.dumps({"url": checkout.as_uri(), "dir_info": {"editable": True}})
        (site / "sglang-1.2.3.dist-info" / "direct_url.json").write_text(url)
    source = open_source(str(tmp_path / "venv"))
    assert is_the_made_up_one(source)
    assert (str(package), "1.2.3", "installed") == (source.path, source.version, source.kind)


def test_an_environment_that_sees_the_packages_of_its_base_has_that_ones_sglang(tmp_path: Path) -> None:
    base = write_tree(make_environment(tmp_path / "base"))
    make_environment(tmp_path / "venv")
    settings = tmp_path / "venv" / "pyvenv.cfg"
    with pytest.raises(SourceError, match="no SGLang is installed in the Python environment"):
        open_source(str(tmp_path / "venv"))
    settings.write_text(f"home = {tmp_path / 'base' / 'bin'}\ninclude-system-site-packages = true\n")
    assert str(base / "sglang") == open_source(str(tmp_path / "venv")).path


@pytest.mark.parametrize(
    "link", ["", "[]", "{}", '{"url": 1, "dir_info": {"editable": true}}', "\0", '{"dir_info": []}']
)
@pytest.mark.parametrize("named", [".", "bin/python"])
def test_an_environment_without_sglang_is_named_whatever_else_it_holds(tmp_path: Path, link: str, named: str) -> None:
    site = make_environment(tmp_path / "venv")
    write_tree(site, {**METADATA, "sglang-1.2.3.dist-info/direct_url.json": link, "a.pth": "\0\n/nowhere\n"})
    with pytest.raises(SourceError, match="no SGLang is installed in the Python environment") as refused:
        open_source(str(tmp_path / "venv" / named))
    assert "\n" not in str(refused.value)
