"""Observations of several dtypes, whose rows are bytes: one alone reads the same as it does in a batch."""

import dataclasses

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors")

import reverie  # noqa: E402
from reverie import agents  # noqa: E402
from reverie.agents import exports  # noqa: E402
from reverie.agents.env_settings import EnvSettings  # noqa: E402
from reverie.agents.environments import describe  # noqa: E402
from reverie.agents.inputs import ObservationReader  # noqa: E402
from reverie.agents.layers import initialised  # noqa: E402
from reverie.agents.observations import leaves_of, pack, part_of, row_form  # noqa: E402
from reverie.agents.policies import TrainedPolicy  # noqa: E402
from reverie.agents.policy_records import TrainingRun  # noqa: E402
from reverie.runners import Evaluator, train  # noqa: E402

GRID = spaces.Box(0, 255, (7, 7, 3), np.uint8)
SPACES = {
    "OddBytesLast": spaces.Dict({"direction": spaces.Discrete(4), "image": GRID}),  # 4 and 147 bytes
    "OddBytesFirst": spaces.Dict({"camera": GRID, "joints": spaces.Box(-2, 2, (3,), np.float32)}),  # 147 and 12 bytes
    "OddBytesBetween": spaces.Tuple((spaces.MultiBinary(3), spaces.Box(-2, 2, (2,), np.float64), spaces.Discrete(3))),
}


class Uneven(gymnasium.Env):
    """Random observations of a space, in episodes of 3 to 9 steps: in a batch of two, one often plays on alone."""

    action_space = spaces.Discrete(2)

    def __init__(self, observations):
        self.observation_space = observations

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        self.left = int(self.np_random.integers(3, 10))
        return self.observation_space.sample(), {}

    def step(self, action):
        self.left -= 1
        return self.observation_space.sample(), 1.0, self.left == 0, False, {}


for _name, _space in SPACES.items():
    gymnasium.register(f"Reverie{_name}-v0", Uneven, kwargs={"observations": _space})


def rows_of(space, count):
    """Observations, and their rows `[count, bytes]`."""
    space.seed(1)
    seen, leaves = [space.sample() for _ in range(count)], leaves_of(space)
    return seen, np.stack([pack(leaves, [np.asarray(part_of(one, leaf)) for leaf in leaves]) for one in seen])


@pytest.mark.parametrize("name", SPACES)
@pytest.mark.parametrize("frames", [None, 3])
def test_one_observation_has_the_features_that_it_has_in_a_batch(name, frames):
    spec = describe(f"Reverie{name}-v0", EnvSettings(frame_stack=frames))
    reader = initialised(lambda: ObservationReader(spec), 0)
    _, rows = rows_of(SPACES[name], 4 * (frames or 1))
    rows = torch.from_numpy(rows.reshape(4, *spec.obs_shape))
    together = reader(rows)
    for i in range(4):
        alone = reader(rows[i : i + 1])  # at an offset that is no multiple of four bytes
        assert torch.allclose(alone[0], together[i], atol=1e-5)
        for part, whole in zip(reader._split(rows[i : i + 1]), reader._split(rows), strict=True):
            assert torch.equal(part[0], whole[i])


@pytest.mark.parametrize("name", SPACES)
def test_a_trained_policy_takes_one_observation_and_its_file_one_row(name, tmp_path):
    dqn, spec = agents.find("dqn"), describe(f"Reverie{name}-v0")
    config = dataclasses.replace(dqn.load_preset(spec.env_id).config, hidden=(8,))
    run, policy = TrainingRun(0, 1, 1, None), dqn.make_policy(spec, config)
    trained = TrainedPolicy(dqn, "dqn", spec, config, run, policy, tmp_path, np.random.default_rng(0))
    loaded = reverie.load_policy(trained.save(tmp_path / "policy.safetensors"))
    seen, rows = rows_of(SPACES[name], 3)
    assert row_form(spec.leaves) == (rows.shape[1:], "uint8")
    assert [int(loaded(one)) for one in seen] == [int(loaded(row)) for row in rows] == loaded(rows).tolist()
    exports.to_torchscript(loaded, tmp_path / "policy.pt")  # compares it with PyTorch for one row, two and seven


@pytest.mark.long  # the exporter's modules take seconds to import
@pytest.mark.xdist_group("exports")
def test_a_program_of_bytes_computes_batches_of_every_size():
    spec = describe("ReverieOddBytesLast-v0")
    reader = initialised(lambda: ObservationReader(spec), 0).eval()
    rows = torch.from_numpy(rows_of(SPACES["OddBytesLast"], 5)[1])
    program = torch.export.export(reader, (rows[:3],), dynamic_shapes=({0: torch.export.Dim("N")},)).module()
    for batch in (rows[:1], rows[2:3], rows):
        assert torch.allclose(program(batch), reader(batch), atol=1e-5)


def test_episodes_that_end_at_different_steps_are_evaluated_to_the_last_one():
    dqn, spec = agents.find("dqn"), describe("ReverieOddBytesLast-v0")
    config = dataclasses.replace(dqn.load_preset(spec.env_id).config, hidden=(8,))
    evaluator = Evaluator(spec, 2)
    evaluation = evaluator.evaluate(dqn.make_policy(spec, config), [1, 2])
    evaluator.close()
    assert len(set(evaluation.returns)) == 2, "the episodes have different lengths"


def test_a_run_with_one_environment_acts_learns_and_evaluates():
    ppo, env_id = agents.find("ppo"), "ReverieOddBytesLast-v0"
    preset = ppo.load_preset(env_id)
    config = dataclasses.replace(
        preset.config, num_actors=1, envs_per_actor=1, unroll_length=16, minibatch_size=8, epochs=1, hidden=(8,)
    )
    run = dataclasses.replace(
        preset.run, max_env_steps=64, evaluate_every=64, screening_episodes=2, target_return=None, threads=1
    )
    result = train(ppo, env_id, config=config, run=run)
    assert result.learner["updates"] > 0
