"""Parameters over Ray: other processes, an actor that ends, and the reference that it keeps."""

import errno

import numpy as np
import pytest

pytest.importorskip("ray")

import ray

import reverie
from reverie.parameters import Version
from reverie.parameters.ends import Publisher
from reverie.parameters.ray import NewestReference, RayChannel, _RayCarrier

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("ray")]
PATIENT = 200.0


def arrays(value):
    return {"w": np.full(3, value, np.float32)}


def test_a_channel_without_a_connection_to_ray_raises_an_error(monkeypatch):
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    with pytest.raises(RuntimeError, match=r"call ray\.init\(\)"):
        RayChannel()


def test_the_newest_reference_is_the_only_one_that_is_kept():
    newest = NewestReference()
    assert newest.newest(None) == (None, [])
    assert newest.publish((0, 3), ["third"]) is None
    assert newest.publish((0, 2), ["second"]) == newest.publish((0, 3), ["other"]) == Version(0, 3)
    assert newest.newest(None) == newest.newest((0, 2)) == (Version(0, 3), ["third"])
    assert newest.newest((0, 3)) == (Version(0, 3), [])
    newest.publish((1, 0), ["restarted"])
    assert newest.newest((0, 3)) == (Version(1, 0), ["restarted"])


@pytest.mark.parametrize("error", [ray.exceptions.ObjectStoreFullError, ray.exceptions.OutOfDiskError])
def test_a_full_object_store_is_reported_as_a_full_file_system_is(monkeypatch, error):
    def full(arrays):
        raise error("no room")

    monkeypatch.setattr(ray, "put", full)
    publisher = Publisher(_RayCarrier(None), 0, 0)
    with pytest.raises(OSError, match="Ray's object store is full") as raised:
        publisher.publish(arrays(1))
    assert raised.value.errno == errno.ENOSPC


def test_parameters_reach_actors_of_ray(ray_head):
    @ray.remote(num_cpus=0)
    class Actor:
        def __init__(self, channel):
            self.subscriber = channel.subscriber()

        def receive(self, newer_than=None):
            got = self.subscriber.get(newer_than, timeout=PATIENT)
            return got.version, got.arrays["w"].tolist(), got.arrays["w"].flags.writeable

    channel = RayChannel()
    actor = Actor.remote(channel)
    publisher = channel.publisher()
    publisher.publish(arrays(1))
    assert ray.get(actor.receive.remote()) == (Version(0, 0), [1.0] * 3, True)
    waiting = actor.receive.remote(Version(0, 0))
    publisher.publish(arrays(2), number=8)
    assert ray.get(waiting) == (Version(0, 8), [2.0] * 3, True)
    ray.kill(actor)
    channel.close()


def test_an_actor_of_the_channel_that_ends_is_restarted_and_the_next_publication_arrives(ray_head, until):
    channel = RayChannel()
    publisher, subscriber = channel.publisher(), channel.subscriber()
    publisher.publish(arrays(1))
    assert subscriber.get(timeout=PATIENT).version == Version(0, 0)
    ray.kill(channel._actor, no_restart=False)

    def arrived():
        publisher.publish(arrays(2))
        return subscriber.latest(newer_than=Version(0, 0))

    until(arrived)


def test_a_closed_channel_is_the_reason_of_a_deadline(ray_head, until):
    channel = RayChannel()
    publisher, subscriber = channel.publisher(), channel.subscriber()
    publisher.publish(arrays(1))
    first = subscriber.get(timeout=PATIENT).version
    channel.close()
    channel.close()

    def reason():
        with pytest.raises(reverie.DeadlineExceededError) as caught:
            subscriber.get(newer_than=first, timeout=0.05)
        return caught.value.why

    until(lambda: reason().startswith("Ray's object store does not answer: "))
    with pytest.raises(reverie.UnavailableError, match="the actor of Ray's object store cannot be reached: "):
        channel.publisher(timeout=PATIENT)


def test_a_response_that_is_late_is_a_deadline_and_the_next_call_waits_for_it(ray_head, tmp_path):
    channel = RayChannel()
    publisher, go_on = channel.publisher(0), str(tmp_path / "go-on")

    def stall(actor):
        import os
        import time

        while not os.path.exists(go_on):
            time.sleep(0.01)

    stalled = channel._actor.__ray_call__.remote(stall)
    publisher.publish(arrays(1))
    with pytest.raises(reverie.DeadlineExceededError, match="has not responded to the publication of version 0"):
        publisher.publish(arrays(2), timeout=0)
    with pytest.raises(reverie.DeadlineExceededError, match="the actor of Ray's object store has not responded"):
        channel.publisher(timeout=0)
    (tmp_path / "go-on").touch()
    ray.get(stalled)
    assert publisher.publish(arrays(3), timeout=PATIENT) == Version(0, 2)
    assert channel.subscriber().get(newer_than=Version(0, 0), timeout=PATIENT).arrays["w"].tolist() == [3.0] * 3
    channel.close()
