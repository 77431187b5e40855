"""Stand-in for SGLang's compiled kernels, whose shared objects need a GPU's libraries: imports succeed, calls refuse.

SGLang imports names from here at load time and calls none of them on a CPU.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

__version__ = "999.0"  # SGLang refuses a kernel package that is older than it wants


def refusing(module: str) -> Callable[[str], Callable[..., NoReturn]]:
    """Return a module-level `__getattr__` that has every public name, each a function that refuses to run."""

    def attribute(name: str) -> Callable[..., NoReturn]:
        if name.startswith("__"):
            raise AttributeError(name)

        def refuse(*args: object, **kwargs: object) -> NoReturn:
            raise NotImplementedError(f"{module}.{name} needs a GPU; this lane has a stand-in for it")

        return refuse

    return attribute


__getattr__ = refusing(__name__)
