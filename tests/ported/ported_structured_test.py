"""An adder on a structured writer, of the shape of Acme's newest: steps in two halves, items by patterns."""

from typing import NamedTuple

import dm_env
import numpy as np
import pytest
import reverb  # This package: see ported_reverb.py.
import tree
from acme import specs
from reverb import structured_writer as sw

ENVIRONMENT = specs.EnvironmentSpec(
    observations={"pixels": specs.Array((2, 2), np.uint8), "speed": specs.Array((), np.float32)},
    actions=specs.DiscreteArray(4),
    rewards=specs.Array((), np.float32),
    discounts=specs.BoundedArray((), np.float32, 0.0, 1.0),
)


class Step(NamedTuple):
    observation: object
    action: object
    reward: object
    discount: object
    start_of_episode: object
    extras: object = ()


class Transition(NamedTuple):
    observation: object
    action: object
    reward: object
    discount: object
    next_observation: object
    extras: object = ()


def step_spec(extras=()):
    return Step(
        ENVIRONMENT.observations,
        ENVIRONMENT.actions,
        ENVIRONMENT.rewards,
        ENVIRONMENT.discounts,
        specs.Array((), bool, "start_of_episode"),
        extras,
    )


class Adder:
    """Completes a step with what the environment answered, and opens the next one with its observation."""

    def __init__(self, client, spec, configs, max_in_flight_items=2):
        self._writer = client.structured_writer(configs)
        self._nothing = tree.map_structure(lambda _: None, spec)
        self._zeros = tree.map_structure(lambda leaf: np.zeros(leaf.shape, leaf.dtype), spec)
        self._max_in_flight_items = max_in_flight_items

    def add_first(self, timestep):
        assert not self._writer.step_is_open
        self._open(timestep)

    def add(self, action, timestep, extras=()):
        answer = self._nothing._replace(action=action, reward=timestep.reward, discount=timestep.discount)
        self._writer.append(answer._replace(extras=extras) if extras else answer)
        self._open(timestep)
        if timestep.last():
            self._writer.append(self._zeros._replace(observation=self._nothing.observation, start_of_episode=None))
            self._writer.end_episode()
        else:
            self._writer.flush(self._max_in_flight_items)

    def _open(self, timestep):
        step = self._nothing._replace(observation=timestep.observation, start_of_episode=timestep.first())
        self._writer.append(step, partial_step=True)


def n_step(spec, n, table, *, conditions=()):
    def transition(step):
        at = lambda nest, index: tree.map_structure(lambda column: column[index], nest)  # noqa: E731
        return Transition(
            observation=at(step.observation, -n - 1),
            action=step.action[-n - 1],
            reward=step.reward[-n - 1 : -1],
            discount=step.discount[-n - 1 : -1],
            next_observation=at(step.observation, -1),
            extras=at(step.extras, -n - 1),
        )

    return sw.create_config(sw.pattern_from_transform(spec, transition), table, conditions)


def sequences(spec, length, period, table):
    last = sw.pattern_from_transform(spec, lambda step: tree.map_structure(lambda column: column[-length:], step))
    every = sw.Condition.step_index() % period == (length - 1) % period
    return [
        sw.create_config(last, table, [every, sw.Condition.step_index() >= length - 1]),
        sw.create_config(last, table, [sw.Condition.is_end_episode(), sw.Condition.steps_since_applied() > 0]),
    ]


def observation(step):
    return {"pixels": np.full((2, 2), step, np.uint8), "speed": np.float32(step)}


def play(adder, length, extras=False):
    adder.add_first(dm_env.restart(observation(0)))
    for step in range(1, length + 1):
        make = dm_env.termination if step == length else dm_env.transition
        timestep = make(np.float32(step), observation(step))
        timestep = timestep._replace(discount=np.float32(timestep.discount))
        adder.add(np.int32(step % 4), timestep, {"logits": np.full(3, step, np.float32)} if extras else ())


@pytest.fixture
def serve():
    servers = []

    def serve(**signatures):
        servers.append(
            reverb.Server(
                [
                    reverb.Table(
                        name, reverb.selectors.Fifo(), reverb.selectors.Fifo(), 1000,
                        reverb.rate_limiters.MinSize(1), 1, signature=signature,
                    )
                    for name, signature in signatures.items()
                ]
            )
        )  # fmt: skip
        return reverb.Client(f"localhost:{servers[-1].port}")

    yield serve
    for server in servers:
        server.stop()


def drained(client, table):
    found = client.server_info()[table].current_size
    samples = client.sample(table, found, emit_timesteps=False, unpack_as_table_signature=True)
    return [sample.data for sample in samples]


@pytest.mark.parametrize("n", [1, 3])
def test_n_step_transitions_by_a_pattern_have_the_signature_that_is_inferred_of_them(serve, n):
    spec = step_spec()
    config = n_step(spec, n, "transitions")
    client = serve(transitions=sw.infer_signature([config], spec))
    adder = Adder(client, spec, [config])
    for _ in range(2):
        play(adder, 5)
    transitions = drained(client, "transitions")
    assert len(transitions) == 2 * (5 - n + 1)
    for start, found in enumerate(transitions[: 5 - n + 1]):
        assert isinstance(found, Transition)
        assert found.observation["speed"] == start
        assert (found.next_observation["pixels"] == start + n).all()
        assert found.action == (start + 1) % 4
        np.testing.assert_array_equal(found.reward, np.arange(start + 1, start + n + 1, dtype=np.float32))
        assert found.discount[-1] == (0.0 if start + n == 5 else 1.0)


def test_sequences_overlap_and_the_last_ends_with_the_episode(serve):
    spec = step_spec({"logits": specs.Array((3,), np.float32)})
    configs = sequences(spec, 4, 2, "sequences")
    client = serve(sequences=sw.infer_signature(configs, spec))
    play(Adder(client, spec, configs), 6, extras=True)
    found = drained(client, "sequences")
    assert [data.observation["speed"].tolist() for data in found] == [[0, 1, 2, 3], [2, 3, 4, 5], [3, 4, 5, 6]]
    assert found[0].start_of_episode.tolist() == [True, False, False, False]
    assert found[-1].extras["logits"][:, 0].tolist() == [4, 5, 6, 0]


def test_one_writer_fills_several_tables_and_shares_the_steps(serve):
    spec = step_spec()
    configs = [n_step(spec, 1, "one"), n_step(spec, 3, "three"), *sequences(spec, 2, 1, "pairs")]
    signatures = {
        name: sw.infer_signature([config for config in configs if config.table == name], spec)
        for name in ("one", "three", "pairs")
    }
    client = serve(**signatures)
    play(Adder(client, spec, configs), 8)
    assert {name: info.current_size for name, info in client.server_info().items()} == {
        "one": 8,
        "three": 6,
        "pairs": 8 + 1,  # The last once more: the end of the episode has a config of its own.
    }


def test_a_pattern_dataset_makes_the_same_of_stored_steps_and_is_a_dataset_of_tensorflow():
    import tensorflow as tf

    step = {"x": reverb.TensorSpec((), np.int64), "is_last": reverb.TensorSpec((), bool)}
    pattern = sw.pattern_from_transform(step, lambda step: {"pair": step["x"][-2:], "last": step["x"][-1]})
    steps = {"x": np.arange(7), "is_last": np.array([False, False, False, True, False, False, True])}
    dataset = reverb.PatternDataset(
        tf.data.Dataset.from_tensor_slices(steps),
        [sw.create_config(pattern, "none")],
        respect_episode_boundaries=True,
        is_end_of_episode=lambda step: bool(step["is_last"]),
    )
    assert isinstance(dataset, tf.data.Dataset)
    assert dataset.element_spec == {
        "last": tf.TensorSpec((), tf.int64, "last"),
        "pair": tf.TensorSpec((2,), tf.int64, "pair"),
    }
    [batch] = dataset.batch(10)
    assert batch["pair"].numpy().tolist() == [[0, 1], [1, 2], [2, 3], [4, 5], [5, 6]]
    assert batch["last"].numpy().tolist() == [1, 2, 3, 5, 6]
