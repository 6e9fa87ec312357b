"""Messages between a supervisor and its roles, complete and in parts."""

import pickle
import struct
import threading

import numpy as np
import pytest

from reverie.runners.links.message_sockets import RoleSocket, socket_pair

LARGE = np.arange(2_000_000, dtype=np.float32)  # more than any socket holds


@pytest.fixture
def line():
    ours, theirs = socket_pair()
    yield ours, theirs
    ours.close()
    theirs.close()


def received(end, until, count):
    """The next messages, once so many have come in."""
    messages = []

    def come():
        messages.extend(end.receive()[0])
        end.flush()
        return len(messages) >= count

    until(come)
    return messages


def test_messages_arrive_whole_and_in_order_both_ways_however_large(line, until):
    ours, theirs = line
    role, taken = RoleSocket(theirs), []

    def live():
        taken.extend(role.receive() for _ in range(3))
        for message in taken:
            role.send(message)

    thread = threading.Thread(target=live)
    thread.start()
    for message in ("first", LARGE, None):
        ours.send(message)
    first, large, last = received(ours, until, 3)
    thread.join()
    assert (first, last) == ("first", None)
    assert (large == LARGE).all()
    assert (taken[1] == LARGE).all()


def test_a_partial_message_is_not_waited_for_and_arrives_with_its_last_byte(line):
    ours, theirs = line
    data = pickle.dumps({"a": 1})
    packed = struct.pack("!Q", len(data)) + data
    sent = []
    for i in range(len(packed)):
        assert (ours.receive(), i) == (([], False), i)
        theirs.sendall(packed[i : i + 1])
        sent.append(i)
    theirs.sendall(packed)
    assert ours.receive() == ([{"a": 1}, {"a": 1}], False)


def test_a_role_that_does_not_read_blocks_no_one_and_gets_all_messages_later(line, until):
    ours, theirs = line
    for number in range(3):
        ours.send((number, LARGE))
    assert ours.is_sending
    got = []
    role = RoleSocket(theirs)
    thread = threading.Thread(target=lambda: got.extend(role.receive() for _ in range(3)))
    thread.start()
    until(lambda: ours.flush() or not ours.is_sending)
    thread.join()
    assert [number for number, _ in got] == [0, 1, 2]
    assert all((array == LARGE).all() for _, array in got)


def test_the_end_of_a_peer_is_reported_after_all_complete_messages(line):
    ours, theirs = line
    RoleSocket(theirs).send("last words")
    theirs.sendall(struct.pack("!Q", 100) + b"half")
    theirs.close()
    assert ours.receive() == (["last words"], True)
    with pytest.raises(OSError, match="Broken pipe"):
        ours.send("too late")


def test_a_role_notices_that_its_supervisor_has_ended(line):
    ours, theirs = line
    role = RoleSocket(theirs)
    ours.send("stay")
    ours.close()
    assert role.receive() == "stay"
    with pytest.raises(EOFError):
        role.receive()
