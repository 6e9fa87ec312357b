"""References to a server's token, so that pickled clients do not contain it."""

from __future__ import annotations

import os
from os import PathLike
from typing import final

__all__ = ["Token"]


@final
class Token:
    """A reference to a token in an environment variable or a file; `from_env` and `from_file` make it.

    A server or a client reads the token when it is made, and a client again when it is unpickled: the pickle contains
    the name of the variable or the path of the file, never the token.
    """

    __slots__ = ("_env", "_path")

    _env: str | None
    _path: str | None

    def __init__(self, *_anything: object) -> None:
        raise TypeError("make a Token with Token.from_env(NAME) or Token.from_file(PATH); a str is a token itself")

    @classmethod
    def from_env(cls, name: str) -> Token:
        """The token in the environment variable `name`.

        Raises:
            TypeError: for a name that is not a str, or empty.
        """
        if not name or not isinstance(name, str):
            raise TypeError(f"the name of an environment variable must be a str, got {name!r}")
        return cls._of(name, None)

    @classmethod
    def from_file(cls, path: str | PathLike[str]) -> Token:
        """The token in a file, without white space around it. The process that reads it resolves a relative path."""
        return cls._of(None, os.fspath(path))

    @classmethod
    def _of(cls, env: str | None, path: str | None) -> Token:
        self = object.__new__(cls)
        self._env, self._path = env, path
        return self

    def read(self) -> str:
        """Reads the token.

        Raises:
            ValueError: the variable is not set, or the variable or the file is empty.
            OSError: the file cannot be read.
        """
        if self._path is not None:
            from pathlib import Path

            found, where = Path(self._path).read_text(), f"the file '{self._path}'"
        else:
            found, where = os.environ.get(str(self._env), ""), f"the environment variable '{self._env}'"
        if not found.strip():
            raise ValueError(f"{where} contains no token: write it there, or name another place in token=")
        return found.strip()

    def __reduce__(self) -> tuple[object, ...]:
        return type(self)._of, (self._env, self._path)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Token) and (self._env, self._path) == (other._env, other._path)

    def __hash__(self) -> int:
        return hash((self._env, self._path))

    def __repr__(self) -> str:
        return f"Token.from_env({self._env!r})" if self._path is None else f"Token.from_file({self._path!r})"


def text_of(token: str | Token | None) -> str | None:
    """The token itself. Raises as `Token.read` does."""
    return token.read() if isinstance(token, Token) else token
