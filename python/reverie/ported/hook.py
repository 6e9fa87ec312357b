"""The import hook: `reverie.x` for every name of the table, and `reverb.x.y` for every `reverie.x.y`.

The second holds after `sys.modules["reverb"] = reverie`. Without the hook the import system would look for
`reverb.errors` in the package's folder and load a second copy, whose classes no `except` of the first would catch.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any, final

from reverie.ported.names import ATTRIBUTES, MODULES

__all__ = ["attribute", "install"]

_THEIRS = "reverb"


@final
class _Finder:
    """Finds and loads modules by dm-reverb's names.

    It has the methods of a finder and of a loader, and not the base classes of `importlib.abc`: their import takes a
    third of the time of this package's.
    """

    def __init__(self, package: ModuleType) -> None:
        self._package = package

    def _target(self, name: str) -> str | None:
        """The name in this package of the module `name`; None where `name` is not dm-reverb's."""
        top, _, rest = name.partition(".")
        if top == self._package.__name__:
            return MODULES.get(rest)
        # Only while that name is this package's: a real dm-reverb finds its own.
        if top != _THEIRS or not rest or sys.modules.get(_THEIRS) is not self._package:
            return None
        return f"{self._package.__name__}.{rest}"

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        ours = self._target(name)
        if ours is None or importlib.util.find_spec(ours) is None:
            return None
        loader: Any = self  # the import system asks for its methods, not for its class
        return importlib.machinery.ModuleSpec(name, loader, loader_state=ours)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        # The import system returns what is in `sys.modules` when this ends.
        spec = module.__spec__
        assert spec is not None
        sys.modules[module.__name__] = importlib.import_module(spec.loader_state)


def install(package: ModuleType) -> None:
    """Makes dm-reverb's modules importable as submodules of the package, and as those of `reverb` where that is it."""
    sys.meta_path.insert(0, _Finder(package))
    # In dm-reverb `structured` is the module of the writer; here it is of a layer below the writers.
    package.structured.StructuredWriter = package.StructuredWriter


def attribute(package: str, name: str) -> Any:
    """The module or class of dm-reverb with this name; called when it is first used, and loads its module.

    Raises:
        AttributeError: the table has no such name.
    """
    if name in ATTRIBUTES:
        return getattr(importlib.import_module(ATTRIBUTES[name]), name)
    if name in MODULES:
        return importlib.import_module(f"{package}.{name}")
    raise AttributeError(f"module {package!r} has no attribute {name!r}")
