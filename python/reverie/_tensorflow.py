"""TensorFlow, where it is installed, and only when something is asked for that is made of it."""

from __future__ import annotations

from typing import Any

__all__ = ["tensorflow"]


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
