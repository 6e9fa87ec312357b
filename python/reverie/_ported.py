"""Import paths of ported code: after `sys.modules["reverb"] = reverie` every `reverb.x.y` is `reverie.x.y`.

Without this the import system would look for `reverb.errors` in the package's folder and load a second copy of it,
whose classes no `except` of the first would catch.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any, final

__all__ = ["install"]

_THEIRS = "reverb"


@final
class _Ported:
    """Finds modules below `reverb`, only while that name is this package's: a finder and a loader by its methods.

    `importlib.abc` has base classes for both; importing it takes a third as long again as importing the package.
    """

    def __init__(self, package: ModuleType) -> None:
        self._package = package

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        top, _, rest = name.partition(".")
        if top != _THEIRS or not rest or sys.modules.get(_THEIRS) is not self._package:
            return None
        if importlib.util.find_spec(f"{self._package.__name__}.{rest}") is None:
            return None
        loader: Any = self  # the import system asks for its methods, not for its class
        return importlib.machinery.ModuleSpec(name, loader)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        # The import system gives out what is in `sys.modules` by the end.
        rest = module.__name__.partition(".")[2]
        sys.modules[module.__name__] = importlib.import_module(f"{self._package.__name__}.{rest}")


def install(package: ModuleType) -> None:
    """Makes `reverb.x` mean the package's `x`, wherever somebody makes `reverb` mean the package."""
    sys.meta_path.insert(0, _Ported(package))
