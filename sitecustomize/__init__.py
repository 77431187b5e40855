"""The doorbell of SGLang Probe: on PYTHONPATH, it is imported at the start of every Python. SGLANG_PROBE=0 disarms it.

It never raises or prints to stdout of its own. Standard library only; it parses in, and leaves alone, older Pythons.
"""
import os
import sys

_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def _load(spec):
    """Execute the module of `spec` under its name in sys.modules, where it stays even when it raises."""
    from _frozen_importlib import module_from_spec
    sys.modules[spec.name] = module = module_from_spec(spec)
    spec.loader.exec_module(module)


def _arm():
    """Import the agent from beside this file, whatever sys.path offers, and let it watch for SGLang."""
    reference = os.pathsep.join([sys.prefix, str(sys.implementation.cache_tag)])
    if os.environ.get("SGLANG_PROBE") == "0" or os.environ.setdefault("SGLANG_PROBE_PYTHON", reference) != reference:
        return  # turned off, or a descendant that is another Python than the first armed process
    from _frozen_importlib_external import spec_from_file_location
    package = os.path.join(_ROOT, "sglang_probe")
    package = package if os.path.isdir(package) else os.path.dirname(_ROOT)
    if "sglang_probe" not in sys.modules:
        _load(spec_from_file_location("sglang_probe", package + "/__init__.py", submodule_search_locations=[package]))
    from sglang_probe.agent.finder import arm
    arm()


def _chain():  # noqa: RET503
    """Run the sitecustomize that ours hides: each hidden file once a process, whether it raises or not."""
    from _frozen_importlib_external import PathFinder
    ran = sys.__dict__.setdefault("_sglang_probe_chained", {os.path.realpath(__file__)})
    for spec in (PathFinder.find_spec("sitecustomize", [entry]) for entry in sys.path):
        if spec and spec.loader and spec.origin and os.path.realpath(spec.origin) not in ran:
            ran.add(os.path.realpath(spec.origin))
            return _load(spec)


def _guarded(step, what, oldest):
    try:
        step() if sys.version_info >= oldest else None
    except Exception as error:  # in the words of site.py, which would report the hidden module's failure
        text = "Error in %s; set PYTHONVERBOSE for traceback:\n%s: %s\n" % (what, type(error).__name__, error)
        try:  # noqa: SIM105  # contextlib is not imported yet
            sys.excepthook(*sys.exc_info()) if sys.flags.verbose else os.write(sys.stderr.fileno(), text.encode())
        except Exception:
            pass  # stderr is closed or full: there is nobody to tell


_given = os.environ.get("PYTHONPATH", "")
_others = os.pathsep.join(p for p in _given.split(os.pathsep) if os.path.abspath(p) != _ROOT)
os.environ.update({"PYTHONPATH": _others} if _given != _others else {})  # the Pythons that start meanwhile are not ours
_guarded(_arm, "sglang-probe", (3, 10)) if _given != _others else None
_guarded(_chain, "sitecustomize", (3, 5))
_now = os.environ.get("PYTHONPATH")
_now = _given if _now == _others else os.pathsep.join(filter(None, [_ROOT, _now]))
os.environ.update({"PYTHONPATH": _now} if _given != _others else {})
