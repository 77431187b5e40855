"""The doorbell of SGLang Probe: Python imports this at start-up because its directory is on PYTHONPATH.

It arms the agent, runs the sitecustomize that it hides, and never raises or prints to stdout of its own.
SGLANG_PROBE=0 turns the agent off. Standard library only; it must parse in, and leave alone, every older Python.
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
    if os.environ.get("SGLANG_PROBE") == "0" or sys.version_info < (3, 10):
        return
    reference = os.pathsep.join([sys.prefix, str(sys.implementation.cache_tag)])
    if os.environ.setdefault("SGLANG_PROBE_PYTHON", reference) != reference:
        return  # a descendant that is another Python than the first armed process
    from _frozen_importlib_external import spec_from_file_location
    beside = os.path.join(_ROOT, "sglang_probe")
    package = beside if os.path.isdir(beside) else os.path.dirname(_ROOT)
    init = os.path.join(package, "__init__.py")
    _load(spec_from_file_location("sglang_probe", init, submodule_search_locations=[package]))
    from sglang_probe.agent.finder import arm
    arm()


def _chain():
    """Run the sitecustomize that ours hides, once, whether it raises or not."""
    if sys.version_info >= (3, 5):
        from _frozen_importlib_external import PathFinder
        spec = PathFinder.find_spec("sitecustomize", [p for p in sys.path if os.path.abspath(p) != _ROOT])
        _load(spec) if spec is not None and spec.loader is not None else None


def _guarded(step, what):
    try:
        step()
    except Exception as error:  # in the words of site.py, which would report the hidden module's failure
        sys.stderr.write("Error in %s; set PYTHONVERBOSE for traceback:\n" % what)
        sys.stderr.write("%s: %s\n" % (type(error).__name__, error))


_given = os.environ.get("PYTHONPATH", "")
_others = os.pathsep.join(p for p in _given.split(os.pathsep) if os.path.abspath(p) != _ROOT)
os.environ.update({"PYTHONPATH": _others} if _given else {})  # the Pythons that start meanwhile are not ours
try:
    _guarded(_arm, "sglang-probe") if _given != _others else None
    _guarded(_chain, "sitecustomize")
finally:
    if _given:
        _now = os.environ.get("PYTHONPATH", "")
        os.environ["PYTHONPATH"] = _given if _now == _others else os.pathsep.join([_ROOT, _now])
