"""Errors of a server's file system, at its clients."""

from __future__ import annotations

import pytest

import reverie
from reverie.checkpointers import DefaultCheckpointer


@pytest.mark.parametrize("transport", ["grpc", "shared-memory"])
def test_a_folder_in_use_is_a_storage_error_with_the_servers_path(uniform, tmp_path, transport):
    folder = tmp_path / "kept"
    with (
        reverie.Server([uniform("t")], listen=False, checkpointer=DefaultCheckpointer(folder)) as first,
        reverie.Server([uniform("t")], checkpointer=DefaultCheckpointer(folder)) as second,
        reverie.Client(second.address, transport=transport) as client,
    ):
        first.client().checkpoint()
        with pytest.raises(reverie.StorageError, match="another server saves there") as refused:
            client.checkpoint(timeout=60.0)
    assert (refused.value.path, refused.value.action) == (str(folder), "save to")
    assert "give each server a folder of its own" in refused.value.reason


def test_a_file_that_cannot_be_written_is_a_storage_error_with_its_path(uniform, tmp_path):
    folder = tmp_path / "kept"
    with (
        reverie.Server([uniform("t")], checkpointer=DefaultCheckpointer(folder)) as server,
        reverie.Client(server.address, transport="grpc") as client,
    ):
        folder.write_text("a file where the folder should be")
        with pytest.raises(reverie.StorageError) as refused:
            client.checkpoint(timeout=60.0)
    assert refused.value.path.startswith(str(folder))
