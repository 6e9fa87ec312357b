"""TensorFlow, where it is installed, and only when something is asked for that is made of it."""

from __future__ import annotations

import sys
from typing import Any

__all__ = ["stands_in", "tensorflow"]


def stands_in() -> bool:
    """True where this package stands in for dm-reverb in a program that uses TensorFlow.

    That is where `sys.modules["reverb"]` is this package and TensorFlow was imported. Datasets are TensorFlow's there,
    as those of dm-reverb are everywhere.
    """
    return "tensorflow" in sys.modules and sys.modules.get("reverb") is sys.modules[__package__]


def tensorflow(what: str, instead: str) -> Any:
    """The module.

    Args:
        what: what was asked for.
        instead: what does the same without TensorFlow.

    Raises:
        ImportError: it is not installed; the text says what replaces what was asked for.
    """
    try:
        import tensorflow

        return tensorflow
    except ModuleNotFoundError as error:
        if error.name != "tensorflow":
            raise
        raise ImportError(
            f"{what} gives TensorFlow's tensors, and TensorFlow is not installed (pip install tensorflow); without it "
            f"use {instead}",
            name="tensorflow",
        ) from None
