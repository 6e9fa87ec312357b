"""The calls of publisher and subscriber over each carrier: newest only, whole, in order, checked, with reasons."""

import threading
from collections import deque

import numpy as np
import pytest

import reverie
from reverie.parameters import Version, ends

PATIENT = 200.0
"""Seconds; a deadline that must not pass."""


def arrays(value, size=4):
    return {"w": np.full((2, size), value, np.float32), "steps": np.int64(value)}


def why(subscriber, **options):
    with pytest.raises(reverie.DeadlineExceededError) as caught:
        subscriber.get(timeout=0.05, **options)
    assert caught.value.why in str(caught.value)
    return caught.value.why


def test_parameters_arrive_with_their_names_dtypes_shapes_and_version(channel):
    subscriber = channel.subscriber()
    sent = {
        "layers.0.weight": np.arange(12, dtype=np.float32).reshape(3, 4).T,
        "layers/1": np.array([1.5, 2.5], ">f8"),
        "step": np.int64(7),
        "empty": np.zeros((0, 3), np.float16),
        "mask": np.array([True, False]),
        "phase": np.array([1j], np.complex64),
    }
    assert channel.publisher().publish(sent) == Version(0, 0)
    got = subscriber.get(timeout=PATIENT)
    assert got.version == Version(0, 0)
    assert set(got.arrays) == set(sent)
    for name, array in got.arrays.items():
        assert array.shape == np.shape(sent[name])
        assert array.dtype == np.asarray(sent[name]).dtype.newbyteorder("=")
        assert np.array_equal(array, sent[name])


def test_a_subscriber_that_comes_late_gets_the_newest_and_none_before_it(channel):
    publisher = channel.publisher()
    for value in range(5):
        assert publisher.publish(arrays(value)).number == value
    late = channel.subscriber()
    newest = late.get(timeout=PATIENT, newer_than=Version(0, 3))
    assert newest.version == Version(0, 4)
    assert newest.arrays["steps"] == 4
    assert late.latest(newer_than=newest.version) is None


def test_latest_gives_newer_parameters_once_they_are_published_and_does_not_wait(channel, until):
    publisher, subscriber = channel.publisher(), channel.subscriber()
    assert subscriber.latest() is None
    publisher.publish(arrays(1))
    received = []
    until(lambda: received.append(subscriber.latest()) or received[-1])
    assert received[-1].arrays["w"].tolist() == [[1.0] * 4] * 2
    assert subscriber.latest(newer_than=Version(0, 0)) is None
    publisher.publish(arrays(2))
    until(lambda: received.append(subscriber.latest(newer_than=Version(0, 0))) or received[-1])
    assert received[-1].version == Version(0, 1)


def test_get_waits_for_a_publication(channel):
    subscriber, received = channel.subscriber(), []
    waiting = threading.Thread(target=lambda: received.append(subscriber.get(timeout=PATIENT)))
    waiting.start()
    publisher = channel.publisher()
    publisher.publish(arrays(3))
    waiting.join()
    assert received[0].arrays["steps"] == 3
    waiting = threading.Thread(target=lambda: received.append(subscriber.get(Version(0, 0), timeout=PATIENT)))
    waiting.start()
    publisher.publish(arrays(4))
    waiting.join()
    assert received[1].version == Version(0, 1)


def test_a_deadline_has_its_reason(channel, until):
    subscriber = channel.subscriber()
    where = channel.carrier().where
    until(lambda: why(subscriber) == f"no parameters were published to {where} yet")
    channel.publisher().publish(arrays(1), number=6)
    subscriber.get(timeout=PATIENT)
    assert why(subscriber, newer_than=Version(0, 8)) == (
        f"the newest parameters of {where} are version 6 of generation 0, and the call waits for newer ones than "
        "version 8 of generation 0"
    )


def test_versions_continue_after_a_restart_and_the_publisher_that_was_replaced_is_refused(channel):
    first, subscriber = channel.publisher(), channel.subscriber()
    first.publish(arrays(1))
    first.publish(arrays(2))
    before = subscriber.get(newer_than=Version(0, 0), timeout=PATIENT).version
    second = channel.publisher()
    assert second.publish(arrays(3)) == Version(1, 2)
    after = subscriber.get(newer_than=before, timeout=PATIENT)
    assert after.version > before
    again = iter(lambda: first.publish(arrays(9)), None)
    with pytest.raises(reverie.SupersededError, match="another publisher has replaced this one") as caught:
        deque(again, maxlen=0)  # over Ray the second call raises it
    assert (caught.value.version, caught.value.newest) == (Version(0, 2), Version(1, 2))
    assert why(subscriber, newer_than=after.version)
    assert channel.subscriber().get(timeout=PATIENT).arrays["steps"] == 3


def test_a_later_generation_is_newer_at_a_lower_number_and_a_subscriber_never_goes_back(channel):
    subscriber = channel.subscriber()
    channel.publisher(3).publish(arrays(1), number=100)
    assert subscriber.get(timeout=PATIENT).version == Version(3, 100)
    channel.publisher(4).publish(arrays(2), number=40)
    newest = subscriber.get(newer_than=Version(3, 100), timeout=PATIENT)
    assert newest.version == Version(4, 40)
    assert subscriber.get(timeout=PATIENT).version == Version(4, 40)
    # A learner that goes back to its checkpoint, and does not count its restarts.
    channel.publisher().publish(arrays(3), number=7)
    assert subscriber.get(newer_than=newest.version, timeout=PATIENT).version == Version(5, 7)


def test_a_number_must_be_greater_than_the_last(channel):
    publisher = channel.publisher()
    publisher.publish(arrays(1), number=10)
    with pytest.raises(ValueError, match="number must be greater than 10, the last one, got 10"):
        publisher.publish(arrays(2), number=10)
    assert publisher.publish(arrays(2)) == Version(0, 11)
    with pytest.raises(ValueError, match=r"number must be at most 4294967295, got 4294967296"):
        publisher.publish(arrays(2), number=2**32)
    assert publisher.publish(arrays(3), number=2**32 - 1).number == 2**32 - 1


def test_versions_at_their_limits_are_distinguished(channel):
    subscriber, last = channel.subscriber(), Version(2**20 - 1, 2**32 - 1)
    publisher = channel.publisher(last.generation)
    publisher.publish(arrays(1), number=last.number - 1)
    before = subscriber.get(timeout=PATIENT)
    assert before.version == Version(last.generation, last.number - 1)
    publisher.publish(arrays(2), number=last.number)
    assert subscriber.get(newer_than=before.version, timeout=PATIENT).version == last


@pytest.mark.parametrize(
    ("changed", "path", "text"),
    [
        ({"w": np.zeros((2, 5), np.float32)}, "w", r"'w' is float32 \[2, 5\], and in .* it is float32 \[2, 4\]"),
        ({"w": np.zeros((2, 4), np.float64)}, "w", r"'w' is float64 \[2, 4\], and in .* it is float32 \[2, 4\]"),
        ({"bias": np.zeros(3)}, "bias", r"'bias' is new: .* do not have it"),
        ({"steps": None}, "steps", r"'steps' is missing, and .* have it"),
    ],
)
def test_names_shapes_and_dtypes_must_stay(channel, changed, path, text):
    others = {name: array for name, array in {**arrays(2), **changed}.items() if array is not None}
    publisher, subscriber = channel.publisher(), channel.subscriber()
    publisher.publish(arrays(1))
    subscriber.get(timeout=PATIENT)
    with pytest.raises(reverie.SignatureError, match=text) as caught:
        publisher.publish(others)
    assert caught.value.path == path
    # A publisher that was restarted with another network: its subscribers notice.
    version = channel.publisher().publish(others)
    with pytest.raises(reverie.SignatureError, match=text):
        subscriber.get(newer_than=Version(0, 0), timeout=PATIENT)
    expecting = channel.subscriber(like=arrays(0))
    with pytest.raises(reverie.SignatureError, match=text.replace("in .* it", "in `like` it")):
        expecting.get(timeout=PATIENT)
    assert channel.subscriber(like=others).get(timeout=PATIENT).version == version


def test_each_side_owns_its_arrays(channel):
    publisher, subscriber = channel.publisher(), channel.subscriber()
    mine = arrays(1)
    publisher.publish(mine)
    mine["w"][:] = 9
    one = subscriber.get(timeout=PATIENT)
    one.arrays["w"][:] += 1
    assert subscriber.get(timeout=PATIENT).arrays["w"].tolist() == [[1.0] * 4] * 2


def test_a_subscriber_never_receives_parts_of_two_versions(channel):
    publisher, subscriber = channel.publisher(), channel.subscriber()
    count, size = 100, 50_000

    def publish():
        for value in range(count):
            publisher.publish(arrays(value, size))

    publishing = threading.Thread(target=publish)
    publishing.start()
    seen = []
    while not seen or seen[-1].number < count - 1:
        one = subscriber.get(newer_than=seen[-1] if seen else None, timeout=PATIENT)
        assert one.arrays["w"].shape == (2, size)
        assert (one.arrays["w"] == one.version.number).all()
        assert one.arrays["steps"] == one.version.number
        seen.append(one.version)
    publishing.join()
    assert seen == sorted(set(seen))


def test_state_dicts_of_torch_travel_with_all_their_dtypes(channel):
    torch = pytest.importorskip("torch")
    pytest.importorskip("ml_dtypes")
    network = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
    network[0].to(torch.bfloat16)
    other = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
    other[0].to(torch.bfloat16)
    channel.publisher().publish(network.state_dict())
    got = channel.subscriber(like=other.state_dict()).get(timeout=PATIENT)
    assert got.arrays["0.weight"].dtype.name == "bfloat16"
    assert all(isinstance(array, np.ndarray) for array in got.arrays.values())
    other.load_state_dict(got.state_dict())
    assert all(torch.equal(one, other.state_dict()[name]) for name, one in network.state_dict().items())


def test_a_wait_without_a_deadline_logs_its_reason(channel, caplog, monkeypatch, until):
    monkeypatch.setattr(ends, "LOG_SECONDS", 0.0)
    publisher, subscriber = channel.publisher(), channel.subscriber()
    waiting = threading.Thread(target=subscriber.get)
    with caplog.at_level("WARNING", "reverie"):
        waiting.start()
        until(
            lambda: any("still waiting after 0 s: no parameters were published to" in line for line in caplog.messages)
        )
    publisher.publish(arrays(1))
    waiting.join(PATIENT)
    assert not waiting.is_alive()


@pytest.mark.parametrize(
    ("bad", "error", "text"),
    [
        ([np.zeros(3)], TypeError, r"must be a dict of arrays by name, .*, got a list"),
        ({}, ValueError, "must have at least one array"),
        ({1: np.zeros(3)}, TypeError, "the names of parameters must be str, got 1"),
        ({"": np.zeros(3)}, ValueError, "text that is not empty"),
        ({"w": [1.0, 2.0]}, TypeError, "parameter 'w' must be an array or a tensor, got a list"),
        ({"net": {"w": np.zeros(3)}}, TypeError, "'net' must be an array .*, got a dict: join nested names"),
        ({"w": np.array(["a"])}, TypeError, "parameter 'w' must be an array of numbers, got dtype <U1"),
        ({"w": np.ma.zeros(3)}, TypeError, "parameter 'w' must be an array or a tensor, got a MaskedArray"),
    ],
)
def test_other_values_than_arrays_by_name_are_refused(channel, bad, error, text):
    with pytest.raises(error, match=text):
        channel.publisher().publish(bad)
    with pytest.raises(error, match=text):
        channel.subscriber(like=bad)


def test_bad_arguments_are_refused_by_name(channel):
    subscriber = channel.subscriber()
    with pytest.raises(TypeError, match=r"newer_than must be a reverie\.parameters\.Version, got 3"):
        subscriber.get(newer_than=3)
    with pytest.raises(ValueError, match=r"newer_than\.generation must be at most 1048575"):
        subscriber.latest(newer_than=Version(2**20, 0))
    with pytest.raises(ValueError, match="timeout must be None or at least 0 seconds, got -1"):
        subscriber.get(timeout=-1)
    with pytest.raises(ValueError, match="timeout must be None or at least 0 seconds, got nan"):
        channel.publisher().publish(arrays(1), timeout=float("nan"))
    with pytest.raises(ValueError, match="generation must be at least 0, got -1"):
        channel.publisher(-1)
