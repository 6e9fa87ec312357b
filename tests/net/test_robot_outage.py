"""The robot of the examples through an outage: its control loop goes on, and its steps arrive once."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

import reverie
from reverie.testing import ServerProcess

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "robot_actor_learner.py"


@pytest.fixture
def robot():
    spec = importlib.util.spec_from_file_location("robot_actor_learner", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def step(number, *, last=False, intervention=False, size=8):
    """A step of the robot with small cameras."""
    image = np.random.default_rng(number).integers(0, 255, (size, size, 3), dtype=np.uint8)
    flags = {"done": np.bool_(False), "last": np.bool_(last), "intervention": np.bool_(intervention)}
    values = {"joints": np.zeros(4, np.float32), "action": np.zeros(2, np.float32), "reward": np.float32(0)}
    return {"wrist": image, "scene": image, **values, **flags, "step": np.int64(number)}


def tables():
    return [
        reverie.Table(name, reverie.selectors.Uniform(), reverie.selectors.Fifo(), 10_000)
        for name in ("replay", "interventions")
    ]


def steps_of(client, table):
    """The numbers of both steps of each item."""
    return client.get(table, client.query(table).key, columns=["step"]).data["step"]


@pytest.mark.long
def test_steps_of_an_outage_arrive_once_and_in_order(robot):
    host = ServerProcess()
    with host.serve(tables()) as address, reverie.Client(address, transport="grpc") as client:
        sender = robot.Sender(client)
        sender.start()
        for number in range(20):
            sender.put(step(number, intervention=number % 3 == 0))
        with host.suspended():
            # All of these calls return while the server answers nothing.
            for number in range(20, 320):
                sender.put(step(number, last=number % 50 == 0, intervention=number % 3 == 0))
        for number in range(320, 340):
            sender.put(step(number, intervention=number % 3 == 0))
        sender.close()
        wanted = [(n, n + 1) for n in range(339) if n < 20 or n > 319 or n % 50 != 0]
        assert [tuple(pair) for pair in steps_of(client, "replay").tolist()] == wanted
        assert sender.refused == 0
        assert sender.expected == len(wanted)
        helped = [pair[0] for pair in steps_of(client, "interventions").tolist()]
        assert helped == [first for first, _ in wanted if first % 3 == 0]
    host.close()


@pytest.mark.long
def test_steps_beyond_the_bound_are_refused_and_no_transition_crosses_the_gap(robot, monkeypatch):
    monkeypatch.setattr(robot, "MAX_WAITING", 5)
    host = ServerProcess()
    with (
        host.serve(tables()) as address,
        reverie.Client(address, transport="grpc", max_in_flight_bytes=1 << 16) as client,
    ):
        sender = robot.Sender(client)
        sender.start()
        with host.suspended():
            number = 0
            while sender.refused < 10:
                sender.put(step(number, size=64))
                number += 1
        for late in range(number, number + 5):
            while sender._steps.full():
                client.can_sample("replay")
            sender.put(step(late, size=64))
        sender.close()
        pairs = steps_of(client, "replay")
        assert len(pairs) == sender.expected
        assert (pairs[:, 1] - pairs[:, 0] == 1).all()
        assert len(np.unique(pairs[:, 0])) == len(pairs)
        assert number + 5 - sender.refused > len(pairs)
    host.close()
