"""The titles of a run's processes, as `ps` and `top` show them."""

from __future__ import annotations

__all__ = ["set_title"]


def set_title(title: str) -> None:
    """Give this process the title `reverie: TITLE`, if setproctitle is installed (`reverie[agents]` includes it)."""
    try:
        from setproctitle import setproctitle
    except ImportError:
        return
    setproctitle(f"reverie: {title}")
