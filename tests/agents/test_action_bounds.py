"""Actions of continuous spaces lie within their bounds, whatever these are; spaces that no agent fits are refused."""

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
from reverie.agents.continuous import ActionScale  # noqa: E402
from reverie.agents.core import Stopwatch  # noqa: E402
from reverie.agents.env_settings import EnvSettings  # noqa: E402
from reverie.agents.environments import UnsupportedEnvironmentError, describe  # noqa: E402
from reverie.agents.policies import TrainedPolicy  # noqa: E402
from reverie.agents.policy_records import TrainingRun  # noqa: E402
from reverie.agents.wrappers import ActionsFromZero  # noqa: E402
from reverie.runners.reports.evaluation import Evaluator, screening_seeds  # noqa: E402

FLOATS = np.finfo(np.float32)
# As float32 the lower bounds -0.1 and -0.3 and the upper bound 0.1 lie outside of these, and the others within.
LOW, HIGH = np.array([-0.1, -0.3, 0.1]), np.array([0.1, 0.7, 0.9])
ACTIONS = {
    "Float64": spaces.Box(LOW, HIGH, dtype=np.float64),
    "Float16": spaces.Box(LOW.astype(np.float16), HIGH.astype(np.float16), dtype=np.float16),
    "Binary": spaces.MultiBinary(2),
    "Int32": spaces.Discrete(3, dtype=np.int32),
    "Int32Pair": spaces.MultiDiscrete([2, 3], dtype=np.int32),
    "ShiftedInt16": spaces.Discrete(3, start=1, dtype=np.int16),
    "OneValue": spaces.Box(np.array([-1, 2], np.float32), np.array([1, 2], np.float32)),
    "Widest": spaces.Box(FLOATS.min, FLOATS.max, (1,), np.float32),
    "WiderThanFloat32": spaces.Box(-1e300, 1e300, (1,), np.float64),
    "Large": spaces.Box(np.float32(2.5e38), np.float32(3e38), (1,), np.float32),
    "Integers": spaces.Box(-3, 3, (2,), np.int32),
    "Shifted": spaces.Discrete(3, start=1),
    "Pair": spaces.Tuple((spaces.Discrete(2), spaces.Box(-1, 1, (2,), np.float32))),
    "Rows": spaces.MultiDiscrete([[2, 3], [2, 2]]),
}


class Strict(gymnasium.Env):
    """Raises for an action that is not in its space."""

    observation_space = spaces.Box(-1, 1, (2,), np.float32)

    def __init__(self, actions):
        self.action_space = actions

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        assert self.action_space.contains(action), action
        assert np.asarray(action).dtype == self.action_space.dtype, np.asarray(action).dtype
        self.steps += 1
        return self.np_random.uniform(-1, 1, 2).astype(np.float32), 1.0, False, self.steps == 9, {}


for _name, _space in ACTIONS.items():
    gymnasium.register(f"ReverieActions{_name}-v0", Strict, kwargs={"actions": _space}, disable_env_checker=True)


def id_of(name):
    return f"ReverieActions{name}-v0"


def saturated(name, env_id, folder, sign):
    """A policy of the agent whose greedy actions are all at one bound."""
    agent, spec = agents.find(name), describe(env_id)
    config = agent.load_preset(env_id).config
    small = {field: (8,) for field in ("hidden", "policy_hidden", "critic_hidden") if hasattr(config, field)}
    config = dataclasses.replace(config, **small)
    policy = agent.make_policy(spec, config)
    for key, parameter in policy.module.named_parameters():
        parameter.data.fill_(100.0 * sign if key.endswith("bias") and "torso" not in key else 0.0)
    return TrainedPolicy(
        agent, name, spec, config, TrainingRun(0, 1, 1, None), policy, folder, np.random.default_rng(0)
    )


@pytest.mark.parametrize(
    ("name", "space"),
    [("td3", "Float16"), ("ppo", "Float16"), ("sac", "Float64"), ("ppo", "Float64"), ("dqn", "Binary"),
     ("ppo", "Binary"), ("dqn", "Int32"), ("ppo", "Int32Pair"), ("r2d2", "Int32")],
)  # fmt: skip
def test_evaluations_and_loaded_policies_give_actions_of_the_dtype_of_the_space(name, space, tmp_path):
    trained = saturated(name, id_of(space), tmp_path, 1)
    evaluator = Evaluator(trained.spec, 2)
    evaluator.evaluate(trained.policy, screening_seeds(2), lambda: None)
    evaluator.close()
    loaded = reverie.load_policy(trained.save(tmp_path / "policy.safetensors"))
    env, state = gymnasium.make(id_of(space)), loaded.initial_state() if loaded.recurrent else None
    observation, _ = env.reset(seed=0)
    for greedy in (True, False):
        if state is None:
            action, many = loaded(observation, greedy=greedy), loaded(observation[None], greedy=greedy)
        else:
            action, _ = loaded.step(observation, state, greedy=greedy)
            many, _ = loaded.step(observation[None], state[None], greedy=greedy)
        assert action.dtype == many.dtype == env.action_space.dtype
        env.step(action)


def test_a_policys_file_without_the_dtype_of_actions_gives_those_that_agents_compute(tmp_path, monkeypatch):
    trained = saturated("td3", id_of("Float64"), tmp_path, 1)
    as_dict = dataclasses.asdict
    earlier = lambda one: {key: value for key, value in as_dict(one).items() if key != "action_dtype"}  # noqa: E731
    monkeypatch.setattr("reverie.agents.policy_files.dataclasses.asdict", earlier)
    loaded = reverie.load_policy(trained.save(tmp_path / "policy.safetensors"))
    assert loaded(np.zeros(2, np.float32)).dtype == np.float32


@pytest.mark.parametrize("name", ["ppo", "td3", "sac"])
@pytest.mark.parametrize("sign", [-1, 1])
def test_actions_at_the_bounds_of_a_float64_box_are_in_it(name, sign, tmp_path):
    space, trained = ACTIONS["Float64"], saturated(name, id_of("Float64"), tmp_path, sign)
    loaded = reverie.load_policy(trained.save(tmp_path / "policy.safetensors"))
    observations = np.zeros((3, 2), np.float32)
    assert np.allclose(loaded(observations), HIGH if sign > 0 else LOW, atol=1e-6)
    for actions in (loaded(observations), loaded(observations, greedy=False)):
        assert all(space.contains(one) for one in actions)
    assert space.contains(loaded(observations[0]))
    exports.to_torchscript(loaded, tmp_path / "policy.pt")
    action = torch.jit.load(tmp_path / "policy.pt")(torch.from_numpy(observations))[0].numpy()
    assert np.array_equal(action, loaded(observations))
    assert all(space.contains(one) for one in action)


def test_bounds_are_the_last_numbers_of_float32_within_those_of_the_space():
    scale = ActionScale(describe(id_of("Float64")))
    beyond = np.array([[-1.5] * 3, [1.5] * 3], np.float32)
    ends = scale.to_env(beyond)
    assert ends.dtype == np.float32
    assert (ends[0] >= LOW).all()
    assert (ends[1] <= HIGH).all()
    assert (np.nextafter(ends[0], np.float32(-2)) < LOW).all(), "no number lies between"
    assert (np.nextafter(ends[1], np.float32(2)) > HIGH).all()
    assert np.array_equal(scale.to_env_tensor(torch.from_numpy(beyond)).numpy(), ends)
    pendulum = ActionScale(describe("Pendulum-v1"))
    assert pendulum.to_env(np.array([[-1], [1]], np.float32)).tolist() == [[-2], [2]], "float32 bounds stay"


@pytest.mark.parametrize(
    ("name", "space"),
    [
        *[(name, space) for name in ("td3", "ppo") for space in ("Float16", "Float64", "OneValue", "Large")],
        *[(name, space) for name in ("dqn", "ppo") for space in ("Binary", "Int32", "Int32Pair", "ShiftedInt16")],
    ],
)
def test_actors_give_actions_that_are_in_the_space_and_of_its_dtype(name, space):
    from_zero = EnvSettings(wrappers=("reverie.agents.wrappers:ActionsFromZero",))
    agent, spec = agents.find(name), describe(id_of(space), from_zero if "Shifted" in space else None)
    config = agent.load_preset(spec.env_id, None, vars(spec.settings)).config
    config = dataclasses.replace(config, num_actors=1, envs_per_actor=2)
    config = dataclasses.replace(config, **({"random_steps": 30} if name == "td3" else {}))
    with reverie.Server(agent.make_tables(spec, config, seed=0), listen=False) as server:
        client = server.client()
        learner = agent.make_learner(spec, config, client, seed=0, watch=Stopwatch())
        actor = agent.make_actor(spec, config, client, learner, index=0, seed=0, watch=Stopwatch())
        for _ in range(40):
            actor.act()
        assert actor.drain_crashes() == []
        actor.close()


@pytest.mark.filterwarnings("error")
def test_a_dimension_of_one_value_keeps_it_and_is_0_for_networks():
    scale = ActionScale(describe(id_of("OneValue")))
    assert scale.to_env(np.array([[0.5, -0.5], [-1, 1]], np.float32)).tolist() == [[0.5, 2], [-1, 2]]
    assert scale.from_env(np.array([[0.5, 2.0], [3.0, 2.5]], np.float32)).tolist() == [[0.5, 0], [1, 0]]


def test_equal_bounds_between_two_numbers_of_float32_are_the_nearest_one():
    spec = dataclasses.replace(describe("Pendulum-v1"), action_low=(0.1,), action_high=(0.1,))
    assert ActionScale(spec).to_env(np.array([[-1], [0], [1]], np.float32)).tolist() == [[np.float32(0.1)]] * 3


@pytest.mark.filterwarnings("error")
def test_the_largest_bounds_are_not_added_up():
    scale = ActionScale(describe(id_of("Large")))
    low, middle, high = scale.to_env(np.array([[-1], [0], [1]], np.float32))[:, 0]
    assert (low, high) == (np.float32(2.5e38), np.float32(3e38))
    assert middle == pytest.approx(2.75e38, rel=1e-6)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("space", ["Widest", "WiderThanFloat32"])
@pytest.mark.parametrize("name", ["ppo", "sac"])
def test_bounds_whose_distance_is_not_finite_are_none(name, space):
    with pytest.raises(UnsupportedEnvironmentError, match=r"are Box.* within bounds; wrap .* finite in float32"):
        agents.find(name).check(describe(id_of(space)))


def test_a_box_of_integers_is_refused_with_what_to_use_in_its_place():
    with pytest.raises(UnsupportedEnvironmentError, match=r"Box\(-3, 3, \(2,\), int32\).*floats.*MultiDiscrete"):
        describe(id_of("Integers"))


def test_choices_that_do_not_start_at_0_are_refused_with_a_wrapper_to_name():
    with pytest.raises(
        UnsupportedEnvironmentError,
        match=r"start at 1; .*: name reverie\.agents\.wrappers:ActionsFromZero in wrappers, which adds the start",
    ):
        describe(id_of("Shifted"))


def test_choices_count_from_0_with_a_gymnasium_whose_discrete_spaces_have_one_dtype(monkeypatch):
    """1.1, the oldest one that this package takes."""
    made = spaces.Discrete.__init__
    environment = gymnasium.make(id_of("ShiftedInt16"))
    monkeypatch.setattr(spaces.Discrete, "__init__", lambda self, n, seed=None, start=0: made(self, n, seed, start))
    env = ActionsFromZero(environment)
    assert env.action_space == spaces.Discrete(3)
    assert [(int(one), one.dtype) for one in map(env.action, range(3))] == [(n, np.int16) for n in (1, 2, 3)]


@pytest.mark.parametrize("space", ["Pair", "Rows"])
def test_actions_that_no_agent_gives_are_refused_with_those_that_agents_give(space):
    with pytest.raises(UnsupportedEnvironmentError, match=r"give Discrete, MultiDiscrete .* and a Box of floats: name"):
        describe(id_of(space))
