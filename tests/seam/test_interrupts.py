"""Ctrl-C ends native calls that read or write many files, and leaves what a kill would leave."""

import contextlib
import sys
import threading
import time
from _thread import interrupt_main

import numpy as np
import pytest

from reverie import DamagedError, Journal, Server, StorageError, Table, _native, selectors

ITEMS = 96


def tables():
    return [Table("t", selectors.Fifo(), selectors.Fifo(), 1000, compression="none")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A journal's folder with 96 MiB: reading it takes longer than the time between two looks for signals."""
    folder = tmp_path_factory.mktemp("large") / "journal"
    with Server(tables(), journal=Journal(folder, sync="os"), listen=False) as server:
        client = server.client()
        for number in range(ITEMS):
            client.insert_batch("t", {"x": np.full((1, 1 << 20), number, np.uint8)})
    return folder


def interrupted(call):
    """Calls `call` in this thread, and interrupts it once it has begun; True if it raised KeyboardInterrupt."""
    main, code = threading.main_thread().ident, call.__code__

    def interrupt():
        while True:
            frame = sys._current_frames()[main]
            while frame is not None and frame.f_code is not code:
                frame = frame.f_back
            if frame is not None:
                break
            time.sleep(0)
        interrupt_main()

    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        call()
        thread.join()
    except KeyboardInterrupt:
        return True
    finally:
        thread.join()
    return False


def test_a_repair_that_is_interrupted_has_no_checkpoint_and_can_be_made_again(folder, tmp_path):
    to = tmp_path / "repaired"

    def repair():
        _native.repair_checkpoint(str(folder), str(to))

    assert interrupted(repair)
    assert _native.latest_checkpoint(str(to)) is None
    before = sorted(folder.iterdir())
    repaired = _native.repair_checkpoint(str(folder), str(to))
    assert (repaired["num_items"], repaired["losses"]) == (ITEMS, [])
    assert sorted(folder.iterdir()) == before


def test_a_start_that_is_interrupted_leaves_its_folder_to_the_next(folder):
    made = []

    def start():
        made.append(Server(tables(), journal=Journal(folder, sync="os"), listen=False))

    assert interrupted(start)
    assert not made
    with Server(tables(), journal=Journal(folder, sync="os"), listen=False) as server:
        assert server.client().info().tables["t"].current_size == ITEMS


def test_an_error_that_comes_before_an_interrupt_is_raised(tmp_path):
    (tmp_path / "0000000000000001.checkpoint").write_bytes(b"no checkpoint")
    with pytest.raises(DamagedError):
        _native.describe_checkpoint(str(tmp_path / "0000000000000001.checkpoint"))


def test_ctrl_c_ends_the_wait_for_the_end_of_a_journal_and_the_folder_is_released_when_that_has_ended(tmp_path):
    server = Server(tables(), journal=Journal(tmp_path / "journal", sync="os"), listen=False)
    for number in range(ITEMS):
        server.client().insert_batch("t", {"x": np.full((1, 1 << 20), number, np.uint8)})

    def stop():
        server.stop()

    assert interrupted(stop)
    deadline, again = time.monotonic() + 60, None
    while again is None and time.monotonic() < deadline:
        # Refused while the journal of the other one is still written.
        with contextlib.suppress(StorageError):
            again = Server(tables(), journal=Journal(tmp_path / "journal"), listen=False)
    assert again is not None
    with again:
        assert again.client().info().tables["t"].current_size == ITEMS
