"""The `reverie` command. One file per command; this one only checks that its libraries are installed."""

from __future__ import annotations

import importlib.util
import sys

__all__ = ["main"]


def main() -> None:
    """Entry point of the `reverie` script."""
    missing = [name for name in ("typer", "rich", "matplotlib") if importlib.util.find_spec(name) is None]
    if missing:
        print(f'reverie: {", ".join(missing)} not installed: pip install "reverie[cli]"', file=sys.stderr)
        raise SystemExit(2)
    from reverie.cli.app import app
    from reverie.cli.common import print_training_warnings

    print_training_warnings()
    app()
