import errno
import os
import resource
import threading

import numpy as np
import pytest

from reverie.agents.core import Weights
from reverie.parameters import FileChannel
from reverie.runners.links.weights import WeightsChannel


def weights(version, size=4):
    return Weights(version, np.full(size, version, np.float32))


def test_weights_are_available_once_published_and_only_if_newer(tmp_path):
    way = WeightsChannel(FileChannel(tmp_path / "weights"))
    source = way.source()
    assert not source.ready
    assert source.latest(-1) is None
    publisher = way.publisher(0)
    publisher.publish(weights(3))
    assert source.ready
    one = source.latest(-1)
    assert (one.version, one.flat.tolist()) == (3, [3.0] * 4)
    assert source.latest(3) is None
    publisher.publish(weights(5))
    assert source.latest(3).version == 5
    assert source.latest(5) is None


def test_received_weights_are_a_copy(tmp_path):
    way = WeightsChannel(FileChannel(tmp_path / "weights"))
    way.publisher(0).publish(weights(1))
    source = way.source()
    one = source.latest(-1)
    one.flat[:] = 9
    assert source.latest(-1).flat.tolist() == [1.0] * 4


def test_weights_of_a_restarted_learner_are_newer_at_a_lower_version(tmp_path):
    way = WeightsChannel(FileChannel(tmp_path / "weights"))
    source = way.source()
    way.publisher(0).publish(weights(100))
    assert source.latest(-1).version == 100
    way.publisher(1).publish(weights(40))
    assert source.latest(100).version == 40
    assert source.latest(40) is None


def test_weights_that_do_not_fit_raise_an_error_with_the_file_and_keep_the_previous_ones(tmp_path):
    """A file system that is nearly full writes a part of the data, and reports no error."""
    way = WeightsChannel(FileChannel(tmp_path / "weights"))
    publisher, source = way.publisher(0), way.source()
    publisher.publish(weights(1, 1000))
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limit[1]))
    try:
        with pytest.raises(OSError, match=r"File too large: .*weights\.0'"):
            publisher.publish(weights(2, 1000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    one = source.latest(-1)
    assert (one.version, one.flat.tolist()) == (1, [1.0] * 1000)
    publisher.publish(weights(3, 1000))
    assert source.latest(1).version == 3


def no_room(*args):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_weights_that_a_full_file_system_refuses_are_published_once_it_has_room(tmp_path, monkeypatch):
    way = WeightsChannel(FileChannel(tmp_path / "weights"))
    publisher, source = way.publisher(2), way.source()
    assert publisher.publish(weights(1)) == ""
    with monkeypatch.context() as patched:
        patched.setattr("reverie.parameters.file._write", no_room)
        for version in (2, 2, 3):
            assert publisher.publish(weights(version)) == f"No space left on device ({tmp_path / 'weights.2'})"
    assert source.latest(-1).version == 1
    assert publisher.publish(weights(3)) == ""
    assert source.latest(1).version == 3
    assert sorted(one.name for one in tmp_path.iterdir()) == ["weights", "weights.lock"]


@pytest.mark.long
def test_a_reader_never_sees_parts_of_two_editions(tmp_path):
    way = WeightsChannel(FileChannel(tmp_path / "weights"))
    publisher, source = way.publisher(0), way.source()
    publisher.publish(weights(0, 50_000))
    done = threading.Event()

    def publish():
        for version in range(1, 300):
            publisher.publish(weights(version, 50_000))
        done.set()

    thread = threading.Thread(target=publish)
    thread.start()
    seen = [source.latest(-1).version]
    while not done.is_set() or seen[-1] < 299:
        newer = source.latest(seen[-1])
        if newer is not None:
            assert (newer.flat == newer.version).all()
            assert len(newer.flat) == 50_000
            seen.append(newer.version)
    thread.join()
    assert seen == sorted(set(seen))
