"""Layers of a user in front of an agent's network."""

import dataclasses

import numpy as np
import pytest

torch = pytest.importorskip("torch")
gymnasium = pytest.importorskip("gymnasium")

import reverie  # noqa: E402
from reverie import agents  # noqa: E402
from reverie.agents import presets  # noqa: E402
from reverie.agents.env_settings import EnvSettings  # noqa: E402
from reverie.agents.environments import describe  # noqa: E402
from reverie.agents.inputs import by_name, front, split  # noqa: E402
from reverie.agents.layers import initialised  # noqa: E402
from reverie.agents.own_layers import NetworkError, OwnLayers, sample_observations  # noqa: E402
from reverie.runners import plan, train  # noqa: E402


class Counted(gymnasium.Env):
    """Observations are whole numbers from `low` to 15, as floating-point ones."""

    low = 0.0
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self):
        self.observation_space = gymnasium.spaces.Box(self.low, 15.0, (4,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return np.full(4, self.low, np.float32), {}

    def step(self, action):
        self.steps += 1
        return np.full(4, 15.0, np.float32), 1.0, self.steps == 9, False, {}


gymnasium.register("ReverieCounted-v0", Counted)


class Embedded(torch.nn.Module):
    """Reads observations as indices; `mixed` looks at other rows of the batch, too."""

    def __init__(self, spec, size=16, mixed=False):
        super().__init__()
        self.embedding = torch.nn.Embedding(size, 8)
        self._mixed = mixed

    def forward(self, observations):
        features = self.embedding(observations.long()).flatten(1)
        return features - features.mean(0) if self._mixed else features


def no_layers(spec):
    return "no layers"


class Quadratic(torch.nn.Module):
    """Layers of a user: numbers, their squares, and a normalised projection."""

    def __init__(self, spec, width=3):
        super().__init__()
        self.project = torch.nn.Linear(spec.num_inputs, width)
        self.norm = torch.nn.LayerNorm(width)

    def forward(self, observations):
        return torch.cat([observations, observations**2, self.norm(self.project(observations))], dim=1)


class Remembering(Quadratic):
    def __init__(self, spec):
        super().__init__(spec)
        self.register_buffer("seen", torch.zeros(1))


class Flat(torch.nn.Module):
    def __init__(self, spec):
        super().__init__()

    def forward(self, observations):
        return observations.sum()


class Dropping(torch.nn.Module):
    """Layers that draw from PyTorch's generator, or with `own` from NumPy's."""

    def __init__(self, spec, rate=0.5, own=False):
        super().__init__()
        self.body = torch.nn.Sequential(torch.nn.Linear(spec.num_inputs, 16), torch.nn.Dropout(rate))
        self._own = own

    def forward(self, observations):
        if self._own:
            return observations + float(np.random.default_rng().normal())
        return self.body(observations)


class OverTheBatch(torch.nn.Module):
    """A recurrent layer that takes the rows of a batch for the steps of a sequence."""

    def __init__(self, spec):
        super().__init__()
        self.lstm = torch.nn.LSTM(spec.num_inputs, 4)

    def forward(self, observations):
        return self.lstm(observations)[0]


class NormalisedOverTheBatch(torch.nn.Module):
    def __init__(self, spec):
        super().__init__()

    def forward(self, observations):
        return observations - observations.mean(dim=0)


def lazy(spec):
    return torch.nn.Sequential(torch.nn.LazyLinear(8), torch.nn.ReLU())


class Converting(torch.nn.Module):
    """Computes in float64 inside, which PyTorch itself does not mind."""

    def __init__(self, spec):
        super().__init__()
        self.inner = torch.nn.Linear(spec.num_inputs, 4).double()

    def forward(self, observations):
        return self.inner(observations.double()).float()


class Switching(torch.nn.Module):
    """Layers whose features have another scale in training."""

    def __init__(self, spec):
        super().__init__()

    def forward(self, observations):
        return observations * (2.0 if self.training else 1.0)


@pytest.mark.parametrize("name", ["dqn", "ppo", "sac"])
def test_layers_of_ones_own_stand_in_front_of_the_agents_and_are_trained_saved_and_loaded(name, tmp_path, monkeypatch):
    agent = agents.find(name)
    env_id = "Pendulum-v1" if name == "sac" else "CartPole-v1"
    preset = agent.load_preset(env_id)
    small = {
        "learning_starts": 20,
        "batch_size": 8,
        "hidden": (8,),
        "policy_hidden": (8,),
        "critic_hidden": (8,),
        "random_steps": 5,
        "unroll_length": 8,
        "num_actors": 1,
        "envs_per_actor": 2,
        "samples_per_insert": 8.0,
        "epochs": 2,
    }
    known = {field.name for field in dataclasses.fields(preset.config)}
    config = dataclasses.replace(preset.config, **{k: v for k, v in small.items() if k in known})
    run = dataclasses.replace(
        preset.run,
        max_env_steps=60,
        evaluate_every=60,
        screening_episodes=1,
        confirmation_episodes=1,
        target_return=None,
        threads=1,
    )
    made = EnvSettings(network=f"{__name__}:Quadratic(width=4)", time_limit=20)
    train(agent, env_id, config=config, run=run, environment=made, folder=tmp_path)
    policy = reverie.load_policy(tmp_path)
    first = {key: tuple(one.shape) for key, one in policy.module.named_parameters() if "project.weight" in key}
    assert set(first.values()) == {(4, policy.spec.num_inputs)}
    path = policy.save(tmp_path / "policy.safetensors")
    seen = np.full(policy.spec.obs_shape, 0.1, np.float32)
    assert np.array_equal(reverie.load_policy(path)(seen), policy(seen))
    import sys

    monkeypatch.delitem(sys.modules, __name__)
    with pytest.raises(ValueError, match="imports no module by itself: import"):
        reverie.load_policy(path)


def test_the_seed_decides_the_weights_of_layers_of_ones_own_and_the_global_random_state_stays():
    spec = describe("CartPole-v1", EnvSettings(network=Quadratic))
    before = torch.get_rng_state()
    one, two, other = (initialised(lambda: front(spec)[0][0], seed).layers.project.weight for seed in (1, 1, 2))
    assert torch.equal(one, two)
    assert not torch.equal(one, other)
    assert torch.equal(torch.get_rng_state(), before)
    assert initialised(lambda: front(spec)[0][0], 1).layers.norm.weight.tolist() == [1.0] * 3


@pytest.mark.parametrize(
    ("factory", "reason"),
    [
        ("gymnasium:no_such", "cannot be imported"),
        (f"{__name__}:Remembering", "has the buffer seen, and only parameters reach actors"),
        (f"{__name__}:lazy", r"has sizes that are known after its first call only \(0: LazyLinear\)"),
        (f"{__name__}:Converting", r"has the parameter inner.weight of torch.float64, .*: convert .* with .float\(\)"),
        (f"{__name__}:Flat", "must return floating-point features"),
        (f"{__name__}:no_layers", "returns a str, and must return a nn.Module"),
        (f"{__name__}:Quadratic(width=-1)", "raised RuntimeError"),
        (f"{__name__}:Dropping", r"computes with random numbers \(body.1: Dropout\), and a run would not repeat"),
        (f"{__name__}:Dropping(0.0, own=True)", "computes with random numbers, and a run would not repeat"),
        (f"{__name__}:OverTheBatch", "computes other features of 3 observations .* together than of each alone"),
        (f"{__name__}:NormalisedOverTheBatch", "computes other features of 3 observations"),
    ],
)
def test_layers_that_do_not_fit_are_named_before_anything_starts(factory, reason):
    with pytest.raises(ValueError, match=reason) as caught:
        plan(agents.find("dqn"), "CartPole-v1", environment=EnvSettings(network=factory))
    assert factory in str(caught.value)
    with pytest.raises(ValueError, match="reads observations by itself: leave normalisation out"):
        EnvSettings(network=Quadratic, normalise_rewards=True)


@pytest.mark.parametrize("name", ["ppo", "td3", "ddpg", "d4pg", "sac", "iql", "cql-sac", "apex-dpg"])
def test_own_layers_take_settings_of_other_environments_without_their_normalisation(name):
    changes = {"network": f"{__name__}:Quadratic"}
    preset = agents.find(name).load_preset("LunarLanderContinuous-v3", None, changes)
    found, default = preset.environment, agents.find(name).load_preset("LunarLanderContinuous-v3").environment
    assert (found.network, found.normalise_observations, found.normalise_rewards) == (changes["network"], False, False)
    left_out = [what for what in ("observations", "rewards") if getattr(default, f"normalise_{what}")]
    note = f"; {' and '.join(left_out)} are not normalised, since network is set"
    assert preset.note.endswith(note if left_out else ", 200")
    with pytest.raises(ValueError, match="reads observations by itself: leave normalisation out"):
        agents.find(name).load_preset("LunarLanderContinuous-v3", None, {**changes, "normalise_rewards": True})


def test_a_dropout_that_drops_nothing_is_no_layer_that_draws():
    before = torch.get_rng_state()
    assert front(describe("CartPole-v1", EnvSettings(network=f"{__name__}:Dropping(rate=0.0)")))[1] == 16
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("size", [16, 1])
def test_layers_may_read_numbers_as_indices(size):
    spec = describe("ReverieCounted-v0", EnvSettings(network=f"{__name__}:Embedded(size={size})"))
    assert front(spec)[1] == 32
    mixed = describe("ReverieCounted-v0", EnvSettings(network=f"{__name__}:Embedded(mixed=True)"))
    with pytest.raises(ValueError, match="together than of each alone"):
        front(mixed)


def test_layers_that_read_indices_are_trained():
    result = reverie.train(
        "dqn",
        "ReverieCounted-v0",
        network=f"{__name__}:Embedded",
        max_env_steps=60,
        learning_starts=20,
        target_return=None,
    )
    assert result.env_steps >= 60


@pytest.mark.parametrize("name", agents.BUILT_IN)
def test_policies_compute_in_evaluation_mode(name):
    agent = agents.find(name)
    env_id = "Pendulum-v1" if agent.actions == "continuous" else "CartPole-v1"
    spec = describe(env_id, EnvSettings(network=Switching))
    config = presets.load(sorted(agent.presets.glob("*.toml"))[0], agent.config).config
    policy = agent.make_policy(spec, config)
    assert not any(one.training for one in policy.module.modules())


@pytest.mark.parametrize("env_id", ["Blackjack-v1", "CartPole-v1", "FrozenLake-v1", "Pendulum-v1"])
@pytest.mark.parametrize("frame_stack", [None, 3])
def test_observations_for_the_check_of_layers_are_valid_ones(env_id, frame_stack):
    spec = describe(env_id, EnvSettings(frame_stack=frame_stack))
    seen = sample_observations(spec, 5)
    assert tuple(seen.shape) == (5, *spec.obs_shape)
    assert str(seen.dtype) == f"torch.{spec.obs_dtype}"
    for leaf, part in zip(spec.parts, split(spec.parts, spec.frames_per_stack, seen), strict=True):
        sizes = torch.tensor(leaf.sizes or [1])
        assert leaf.kind != "category" or bool(((part >= 0) & (part < sizes)).all())


class Camera(gymnasium.Env):
    """An environment whose observations have an image and a nest of numbers."""

    def __init__(self):
        numbers = gymnasium.spaces.Dict({"speed": gymnasium.spaces.Box(-1, 1, (4,), np.float32)})
        image = gymnasium.spaces.Box(0, 255, (3, 12, 12), np.uint8)
        self.observation_space = gymnasium.spaces.Dict({"image": image, "body": numbers})
        self.action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._step = 0
        return self._observation(), {}

    def step(self, action):
        self._step += 1
        return self._observation(), float(action), False, self._step == 10, {}

    def _observation(self):
        speed = np.full(4, self._step / 10, np.float32)
        return {"image": np.full((3, 12, 12), self._step, np.uint8), "body": {"speed": speed}}


class Both(torch.nn.Module):
    """Convolutions and numbers of `Camera`, by their names."""

    def __init__(self, spec):
        super().__init__()
        self.spec = spec
        self.image = torch.nn.Sequential(torch.nn.Conv2d(3, 2, 3, stride=2), torch.nn.ReLU(), torch.nn.Flatten())
        self.both = torch.nn.Linear(2 * 5 * 5 + 4, 8)

    def forward(self, observations):
        parts = by_name(self.spec, observations)
        return self.both(torch.cat([self.image(parts["image"].float() / 255), parts["body/speed"]], dim=1))


class ByKeys(Both):
    """Layers that read a `Dict` as those of other libraries do."""

    def forward(self, observations):
        return self.both(torch.cat([self.image(observations["image"] / 255), observations["speed"]], dim=1))


def test_layers_read_the_parts_of_a_nest_by_their_names(tmp_path):
    small = {"learning_starts": 20, "batch_size": 8, "max_env_steps": 40, "hidden": [8], "screening_episodes": 1}
    result = reverie.train("dqn", Camera, network=Both, confirmation_episodes=1, folder=tmp_path, **small)
    observation = Camera().reset(seed=0)[0]
    assert result.learner["updates"] > 0
    assert reverie.load_policy(tmp_path)(observation) == result.policy(observation)


@pytest.mark.parametrize("frames", [1, 3])
def test_the_parts_by_name_are_those_of_the_environment(frames):
    settings = EnvSettings() if frames == 1 else EnvSettings(frame_stack=frames)
    spec = describe(f"{__name__}:Camera", settings)
    rows = sample_observations(spec, 5)
    parts = by_name(spec, rows)
    stack = () if frames == 1 else (frames,)
    assert {name: tuple(part.shape) for name, part in parts.items()} == {
        "image": (5, *stack, 3, 12, 12),
        "body/speed": (5, *stack, 4),
    }
    assert (parts["image"].dtype, parts["body/speed"].dtype) == (torch.uint8, torch.float32)


def test_layers_that_read_a_nest_by_keys_are_named_with_the_way_to_its_parts():
    words = r"\(rows of body/speed, image, which reverie\.agents\.inputs\.by_name\(spec, observations\) takes apart\): "
    with pytest.raises(NetworkError, match=words):
        OwnLayers(describe(f"{__name__}:Camera", EnvSettings(network=ByKeys)))


@pytest.mark.parametrize(
    ("env_id", "where_sizes_are"),
    [
        ("CartPole-v1", r"nn\.Linear\(spec\.num_inputs, 32\) of observations\.flatten\(1\)\.float\(\)"),
        ("Blackjack-v1", r"make layers that take their sizes: spec\.parts has the shape of each part of the nest"),
    ],
)
def test_the_error_about_layers_without_sizes_names_the_attribute_that_has_them(env_id, where_sizes_are):
    with pytest.raises(NetworkError, match=where_sizes_are):
        OwnLayers(describe(env_id, EnvSettings(network=lazy)))
