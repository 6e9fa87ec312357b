"""`reverie.checkpointers`, under another path that ported code imports."""

from reverie.checkpointers import CheckpointerBase, DefaultCheckpointer, TempDirCheckpointer, default_checkpointer

__all__ = ["CheckpointerBase", "DefaultCheckpointer", "TempDirCheckpointer", "default_checkpointer"]
