"""What the Python that would run SGLang says of itself: run there with -c, never imported here.

Standard library only, and no more than Python 2.7 and 3.6 understand: they too must be able to say what they are.
It imports wrapt, structlog and the probe's own agent, as a server would; of SGLang it only looks up where it lies.
"""
# ruff: noqa: BLE001, E402, C402, PTH113, PTH118, RUF005, UP031, UP036
# mypy: ignore-errors

import os
import sys

HAS_FIRST = __name__ == "__main__" and sys.path[:1] == [""]
if HAS_FIRST:  # what this script itself needs comes from the standard library, not from the working directory
    del sys.path[0]

import json
import warnings  # noqa: F401  # the script that follows uses it, and ctypes

try:
    import ctypes  # noqa: F401
    import importlib.metadata
    import importlib.util
except ImportError:  # before 3.8, or built without ctypes
    pass

MARK, WHERE = (sys.argv + ["", ""])[1:3]
"""What begins every line of facts, and the directory that the real command would have first on sys.path."""
DISTRIBUTIONS = ("wrapt", "structlog", "orjson", "nvidia-ml-py", "pynvml", "torch")


def say(what, facts):
    """Write one line of facts."""
    line = "\n%s %s %s\n" % (MARK, what, json.dumps(facts))
    sys.stdout.flush()
    os.write(1, line.encode("utf-8"))


def file_of(name):
    """Return the file of a loaded module, or None."""
    path = getattr(sys.modules.get(name), "__file__", None)
    return os.path.realpath(path) if path else None


def interpreter():
    """Return what this Python is and how it was started."""
    flags = ("ignore_environment", "no_site", "isolated", "no_user_site", "safe_path")
    return {
        "version": list(sys.version_info[:3]),
        "implementation": getattr(getattr(sys, "implementation", None), "name", "cpython"),
        "executable": sys.executable,
        "prefix": sys.prefix,
        "cache_tag": getattr(getattr(sys, "implementation", None), "cache_tag", None),
        "flags": dict((name, bool(getattr(sys.flags, name, False))) for name in flags),
        "pythonpath": os.environ.get("PYTHONPATH"),
        "user_site": getattr(sys.modules.get("site"), "USER_SITE", None),
    }


def doorbell():
    """Return whether the probe watches this process, and which start-up modules there are, in the order of sys.path."""
    watching = [finder for finder in sys.meta_path if type(finder).__module__ == "sglang_probe.agent.finder"]
    found = []
    for entry in sys.path:
        for name in (os.path.join("sitecustomize", "__init__.py"), "sitecustomize.py"):
            path = os.path.realpath(os.path.join(entry or ".", name))
            if os.path.isfile(path) and path not in found:
                found.append(path)
    return {
        "armed": bool(watching),
        "probe": file_of("sglang_probe"),
        "loaded": file_of("sitecustomize"),
        "chained": sorted(sys.__dict__.get("_sglang_probe_chained", ())),
        "sitecustomizes": found,
        "usercustomize": file_of("usercustomize"),
    }


def imported(name):
    """Import a module as the agent would; return its file, or what was raised."""
    try:
        __import__(name)
    except BaseException as error:  # whatever it raises is the answer
        text = "%s: %s" % (type(error).__name__, error)
        return {"error": text, "missing": getattr(error, "name", None) == name or str(error).endswith("named " + name)}
    return {"error": None, "missing": False, "file": file_of(name)}


def versions():
    """Return the versions of installed distributions: the nearest on sys.path counts, as in an import."""
    found = {}
    for name in DISTRIBUTIONS:
        try:
            found[name] = importlib.metadata.version(name)
        except Exception:  # absent, a broken dist-info, or a Python before 3.8
            found[name] = None
    return found


def spec_of(name):
    """Return where a module would come from, without importing it."""
    try:
        spec = importlib.util.find_spec(name)
    except Exception as error:  # a broken finder is an answer too
        return {"file": None, "places": [], "error": "%s: %s" % (type(error).__name__, error)}
    if spec is None:
        return None
    places = [os.path.realpath(place) for place in spec.submodule_search_locations or []]
    file = os.path.realpath(spec.origin) if spec.origin and spec.has_location else None
    return {"file": file, "places": places, "error": None}


def sglang():
    """Return which sglang an import would take, which others there are, and what is installed under that name."""
    if sys.version_info < (3, 8):
        return None
    chosen = spec_of("sglang")
    copies = [os.path.realpath(os.path.join(entry or ".", "sglang")) for entry in sys.path]
    copies = [copy for at, copy in enumerate(copies) if copy not in copies[:at]]
    facts = {
        "chosen": chosen,
        "elsewhere": chosen,
        "copies": [copy for copy in copies if os.path.isfile(os.path.join(copy, "__init__.py"))],
        "installed": installed("sglang"),
    }
    if HAS_FIRST:
        first = sys.path.pop(0)
        sys.path_importer_cache.clear()
        facts["elsewhere"] = spec_of("sglang")
        sys.path.insert(0, first)
    return facts


def installed(name):
    """Return every distribution of a name: version, directory, and its source where it is editable."""
    found = []
    for one in importlib.metadata.distributions(name=name):
        try:
            link = json.loads(one.read_text("direct_url.json") or "{}")
            editable = link.get("url") if link.get("dir_info", {}).get("editable") else None
            found.append(
                {"version": one.version, "at": os.path.realpath(str(one.locate_file(""))), "editable": editable}
            )
        except Exception:  # a broken dist-info is not ours to mend
            continue
    return found


def main():
    """Say everything."""
    facts = {"interpreter": interpreter(), "doorbell": doorbell(), "distributions": versions()}
    if HAS_FIRST:
        sys.path.insert(0, WHERE)
    facts["sglang"] = sglang()
    facts["imports"] = dict((name, imported(name)) for name in ("wrapt", "structlog"))
    facts["agent"] = imported("sglang_probe.agent.core") if facts["doorbell"]["armed"] else None
    say("python", facts)


if __name__ == "__main__":
    main()
