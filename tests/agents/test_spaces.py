"""Observations and actions of every space: packed into rows, read by networks, played by agents."""

import dataclasses
import functools

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

torch = pytest.importorskip("torch")

import reverie  # noqa: E402
from reverie import agents  # noqa: E402
from reverie.agents import exports  # noqa: E402
from reverie.agents.core import Stopwatch  # noqa: E402
from reverie.agents.env_settings import EnvSettings  # noqa: E402
from reverie.agents.environments import (  # noqa: E402
    UnsupportedEnvironmentError,
    describe,
    make_one,
    make_vector,
)
from reverie.agents.inputs import ObservationReader, Statistics, front, front_sizes  # noqa: E402
from reverie.agents.layers import initialised  # noqa: E402
from reverie.agents.observations import image_note, leaves_of, pack, part_of  # noqa: E402
from reverie.agents.policies import TrainedPolicy, require_categories  # noqa: E402
from reverie.agents.policy_records import TrainingRun  # noqa: E402
from reverie.runners import Evaluator, plan, train  # noqa: E402

NEST = spaces.Dict(
    {
        "camera": spaces.Box(0, 255, (16, 16, 3), np.uint8),
        "joints": spaces.Tuple((spaces.Box(-2, 2, (2,), np.float64), spaces.Discrete(3, start=5))),
        "switches": spaces.MultiBinary(4),
    }
)


class Anything(gymnasium.Env):
    """Random observations of a space. The reward is 1 where the action's first part is 1, else 0."""

    def __init__(self, observations, actions, length=6, scale=1.0):
        self.observation_space, self.action_space, self.length, self.scale = observations, actions, length, scale

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        self.steps = 0
        return self.observation_space.sample(), {}

    def step(self, action):
        assert self.action_space.contains(np.asarray(action, self.action_space.dtype)), action
        self.steps += 1
        reward = self.scale * float(np.ravel(action)[0] == 1)
        return self.observation_space.sample(), reward, False, self.steps == self.length, {}


LOOKS = [
    (spaces.Box(0, 255, (24, 32, 3), np.float32), "float32 of shape (24, 32, 3) within [0, 255]"),
    (spaces.Box(-1, 1, (3, 24, 32), np.float64), "float64 of shape (3, 24, 32) within [-1, 1]"),
    (spaces.Box(-np.inf, np.inf, (24, 32, 3), np.float32), "float32 of shape (24, 32, 3) within [-inf, inf]"),
    (spaces.Box(0, 255, (24, 32, 3), np.int64), "int64 of shape (24, 32, 3) within [0, 255]"),
    (spaces.Box(0, 1, (28, 28), np.float32), "float32 of shape (28, 28) within [0, 1]"),
    (spaces.Box(0, 1, (8, 8, 12), np.int8), "int8 of shape (8, 8, 12) within [0, 1]"),
]


@pytest.mark.parametrize(("space", "form"), LOOKS, ids=[form for _, form in LOOKS])
def test_an_array_that_looks_like_an_image_and_is_read_as_numbers_is_noted_with_the_rule(space, form):
    make = functools.partial(Anything, actions=spaces.Discrete(2))
    gymnasium.register("ReverieLooks-v0", make, kwargs={"observations": space}, disable_env_checker=True)
    topology = plan(agents.find("ppo"), "ReverieLooks-v0")
    assert topology.note == (
        f"an observation of ReverieLooks-v0 is {form}, and is read as a vector: an image, which convolutions read, is"
        " uint8 or bool, or has floats within [0, 1] and three axes. If it is one, name a wrapper that converts it in"
        " wrappers"
    )
    assert not topology.env.has_images
    nested = spaces.Dict(eyes=spaces.Tuple((space, spaces.Box(0, 255, (24, 32, 3), np.uint8))), x=spaces.Discrete(2))
    del gymnasium.registry["ReverieLooks-v0"]
    gymnasium.register("ReverieLooks-v0", make, kwargs={"observations": nested}, disable_env_checker=True)
    assert plan(agents.find("ppo"), "ReverieLooks-v0").note.startswith(
        f"the part eyes/0 of observations of ReverieLooks-v0 is {form}, and is read as a vector: "
    )
    del gymnasium.registry["ReverieLooks-v0"]


@pytest.mark.parametrize(
    "space",
    [
        spaces.Box(0, 255, (24, 32, 3), np.uint8),
        spaces.Box(0, 1, (24, 32, 3), np.float32),
        spaces.Box(-np.inf, np.inf, (16, 12), np.float32),
        spaces.Box(-1, 1, (5, 12), np.float32),
        spaces.Box(-1, 1, (3, 3, 2), np.float32),
        spaces.Box(-1, 1, (100,), np.float32),
        spaces.Box(-1, 1, (64, 64, 64), np.float32),
    ],
    ids=str,
)
def test_images_and_arrays_of_other_shapes_have_no_note(space):
    assert image_note("E-v0", space) == ""


def test_a_vector_of_environments_has_the_note_and_own_layers_which_read_arrays_as_they_are_have_none():
    topology = plan(agents.find("ppo"), f"{__name__}:floats_in_a_vector")
    assert "floats_in_a_vector is float32 of shape (24, 32, 3) within [0, 255], and is read as" in topology.note
    own = EnvSettings(network=f"{__name__}:flat_layers")
    assert describe(f"{__name__}:floats_in_a_vector", own).note == ""


def test_a_policys_file_has_no_note_and_gives_the_same_spec(tmp_path):
    spec = describe(f"{__name__}:floats_in_a_vector")
    assert spec.note
    agent = agents.find("ppo")
    config = agent.load_preset(spec.env_id).config
    made = agent.make_policy(spec, config)
    policy = TrainedPolicy(agent, "ppo", spec, config, TrainingRun(0, 1, 1, None), made, None, np.random.default_rng(0))
    policy.save(tmp_path / "policy.safetensors")
    found = reverie.load_policy(tmp_path / "policy.safetensors")
    assert (found.spec, found.spec.note) == (spec, "")


def floats_in_a_vector(num_envs):
    space = spaces.Box(0, 255, (24, 32, 3), np.float32)
    return gymnasium.vector.SyncVectorEnv([lambda: Anything(space, spaces.Discrete(2))] * num_envs)


def flat_layers(spec):
    return torch.nn.Flatten()


def test_bytes_are_divided_by_the_largest_value_of_their_space():
    rng = np.random.default_rng(0)
    grids = {
        "bool": spaces.Box(0, 1, (10, 10, 4), np.bool_),
        "uint8 to 1": spaces.Box(0, 1, (10, 10, 4), np.uint8),
        "uint8 to 255": spaces.Box(0, 255, (10, 10, 4), np.uint8),
    }
    features = {}
    cells = rng.random((5, 10, 10, 4)) < 0.5
    for name, space in grids.items():
        env_id = f"ReverieGrid{len(features)}-v0"
        gymnasium.register(env_id, lambda space=space: Anything(space, BOX))
        spec = describe(env_id)
        reader = initialised(lambda spec=spec: ObservationReader(spec), 0)
        largest = 255 if name == "uint8 to 255" else 1
        features[name] = reader(torch.from_numpy((cells * largest).astype(space.dtype))).detach().numpy()
    assert features["uint8 to 1"] == pytest.approx(features["bool"], abs=1e-5)
    assert features["uint8 to 255"] == pytest.approx(features["bool"], abs=1e-5)
    assert features["bool"].std() > 0.01


BOX = spaces.Box(-1, 1, (2,), np.float32)
SPACES = {
    "Nest": (NEST, spaces.Discrete(2)),
    "NestSteered": (NEST, spaces.Box(-1, 1, (2,), np.float32)),
    "Choices": (BOX, spaces.MultiDiscrete([2, 3])),
    "Switches": (BOX, spaces.MultiBinary(3)),
    "ManyChoices": (BOX, spaces.MultiDiscrete([11, 10, 10])),
    "Grid": (spaces.Box(0, 1, (10, 10, 4), np.bool_), spaces.Discrete(3)),
    "Grey": (spaces.Box(0, 255, (12, 14), np.uint8), spaces.Discrete(2)),
    "Colour": (spaces.Box(0, 255, (40, 44, 3), np.uint8), spaces.Discrete(2)),
    "Number": (spaces.Discrete(5), spaces.Discrete(2)),
    "Sequence": (spaces.Sequence(BOX), spaces.Discrete(2)),
    "Shifted": (BOX, spaces.MultiDiscrete([2, 2], start=[1, 0])),
}
for _name, (_observations, _actions) in SPACES.items():
    gymnasium.register(f"Reverie{_name}-v0", Anything, kwargs={"observations": _observations, "actions": _actions})
gymnasium.register("ReverieLoud-v0", Anything, kwargs={"observations": BOX, "actions": spaces.Discrete(2), "scale": 50})


def id_of(name):
    return f"Reverie{name}-v0"


def test_a_nest_becomes_a_row_of_bytes_in_the_order_of_its_space_and_back():
    spec = describe(id_of("Nest"))
    assert [(leaf.name, leaf.kind, leaf.dtype) for leaf in spec.leaves] == [
        ("camera", "image", "uint8"),
        ("joints/0", "numbers", "float32"),
        ("joints/1", "category", "int32"),
        ("switches", "numbers", "int8"),
    ]
    assert (spec.obs_shape, spec.obs_dtype) == ((16 * 16 * 3 + 8 + 4 + 4,), "uint8")
    NEST.seed(1)
    seen = [NEST.sample() for _ in range(5)]
    rows = np.stack([pack(spec.leaves, [np.asarray(part_of(one, leaf)) for leaf in spec.leaves]) for one in seen])
    reader = ObservationReader(spec)
    camera, joints, category, switches = reader._split(torch.from_numpy(rows))
    for i, one in enumerate(seen):
        assert np.array_equal(camera[i, 0].numpy(), one["camera"])
        assert np.array_equal(joints[i, 0].numpy(), one["joints"][0].astype(np.float32))
        assert category[i, 0].item() == one["joints"][1] - 5
        assert np.array_equal(switches[i, 0].numpy(), one["switches"])


def test_features_are_numbers_then_categories_as_one_hot_vectors_then_images():
    spec = describe(id_of("Nest"))
    reader = initialised(lambda: ObservationReader(spec), 0)
    NEST.seed(2)
    one = NEST.sample()
    row = torch.from_numpy(pack(spec.leaves, [np.asarray(part_of(one, leaf)) for leaf in spec.leaves]))[None]
    features = reader(row)[0].detach()
    assert features.shape == (reader.num_features,) == (front_sizes(spec)[0],)
    assert np.allclose(features[:6].numpy(), [*one["joints"][0].astype(np.float32), *one["switches"]])
    assert features[6:9].tolist() == [float(i == one["joints"][1] - 5) for i in range(3)]
    image = torch.from_numpy(one["camera"]).permute(2, 0, 1)[None]
    assert torch.equal(features[9:], reader.images[0](image)[0])
    assert sum(one.numel() for one in reader.parameters()) == front_sizes(spec)[1]


def test_leaves_of_one_dtype_stay_of_that_dtype_and_a_plain_vector_has_none():
    both = spaces.Dict({"a": BOX, "b": spaces.Box(-1, 1, (2, 2), np.float32)})
    leaves = leaves_of(both)
    row = pack(leaves, [np.ones((3, 2), np.float32), np.zeros((3, 2, 2), np.float32)])
    assert (row.shape, row.dtype) == ((3, 6), np.float32)
    spec = describe("CartPole-v1")
    assert spec.leaves == ()
    assert front(spec) == ([], 4)


@pytest.mark.parametrize(
    ("name", "kernels", "channels", "largest"),
    [("Grid", [3], 4, 1), ("Grey", [4, 3], 1, 255), ("Colour", [8, 4, 3], 3, 255)],
)
def test_images_of_any_size_are_read_by_convolutions_that_fit_them(name, kernels, channels, largest):
    spec = describe(id_of(name))
    assert spec.has_images
    reader = initialised(lambda: ObservationReader(spec), 0)
    assert [layer.kernel_size[0] for layer in reader.images[0].convolutions] == kernels
    assert reader.images[0].convolutions[0].in_channels == channels
    seen = torch.from_numpy(np.stack([spec_sample(spec) for _ in range(2)]))
    assert reader(seen).shape == (2, reader.num_features)
    first = reader.images[0].convolutions[0]
    pixels = seen.float().reshape(2, *spec.obs_shape)
    pixels = pixels.permute(0, 3, 1, 2) if pixels.ndim == 4 else pixels[:, None]
    expected = torch.relu(torch.nn.functional.conv2d(pixels / largest, first.weight, first.bias, first.stride))
    got = torch.relu(torch.nn.functional.conv2d(pixels, first.weight / largest, first.bias, first.stride))
    assert torch.allclose(expected, got, atol=1e-5)


def spec_sample(spec):
    rng = np.random.default_rng(0)
    high = 2 if spec.obs_dtype == "bool" else 256
    return rng.integers(0, high, spec.obs_shape).astype(spec.obs_dtype)


def test_a_space_that_no_network_reads_is_named():
    with pytest.raises(UnsupportedEnvironmentError, match=r"ReverieSequence-v0 cannot be read: the space is Sequence"):
        describe(id_of("Sequence"))
    with pytest.raises(UnsupportedEnvironmentError, match="must start at 0"):
        describe(id_of("Shifted"))


def test_stacks_of_frames_are_the_same_for_evaluators_and_for_actors():
    spec = describe(id_of("Grey"), EnvSettings(frame_stack=3))
    assert spec.obs_shape == (3, 12, 14)
    assert spec.stored_bytes == 12 * 14
    env = make_one(spec)
    first, _ = env.reset(seed=4)
    assert np.array_equal(first[0], first[2]), "the first frame of an episode is repeated"
    newest = make_vector(spec, 1, newest_frames=True)
    frames, _ = newest.reset(seed=4)
    assert np.array_equal(frames[0], first[2])
    for step in range(6):
        stacked, _, _, truncated, _ = env.step(0)
        frames, _, _, ended, info = newest.step(np.array([0]))
        assert np.array_equal(info["final_obs"][0], stacked[2])
        assert truncated == ended[0] == (step == 5)
    assert not np.array_equal(frames[0], stacked[2]), "the vector has begun the next episode"


def table_of(name, agent, **settings):
    """The columns of a batch that an actor of the agent has written."""
    spec = describe(id_of(name), EnvSettings(**settings))
    config = dataclasses.replace(
        agent.load_preset(spec.env_id).config, num_actors=1, envs_per_actor=2, learning_starts=4
    )
    if hasattr(config, "random_hold"):
        config = dataclasses.replace(config, random_hold=1.0)  # so that few steps have many actions
    with reverie.Server(agent.make_tables(spec, config, seed=0), listen=False) as server:
        client = server.client()
        learner = agent.make_learner(spec, config, client, seed=0, watch=Stopwatch())
        actor = agent.make_actor(spec, config, client, learner, index=0, seed=0, watch=Stopwatch())
        needs = agent.needs(config)
        for _ in range(40):
            if client.can_insert("replay", needs.inserts_per_act):
                actor.act()
        actor.settle()
        batch = client.sample_batch("replay", 16, timeout=5)
        learner.learn()
        actor.close()
    return spec, batch.data, learner, actor


def test_items_of_stacked_frames_end_in_the_stack_after_the_actions():
    dqn = agents.find("dqn")
    _, data, learner, _ = table_of("Grey", dqn, frame_stack=3)
    assert data["obs"].shape == data["next_obs"].shape == (16, 3, 12, 14)
    assert np.array_equal(data["obs"][:, 1:], data["next_obs"][:, :-1]), "one step moves the stack by one frame"
    assert learner.version == 1


@pytest.mark.long
def test_a_table_has_each_frame_of_a_stack_once():
    dqn = agents.find("dqn")
    spec = describe(id_of("Grey"), EnvSettings(frame_stack=8))
    config = dataclasses.replace(dqn.load_preset(spec.env_id).config, num_actors=1, envs_per_actor=1, learning_starts=1)
    (table,) = dqn.make_tables(spec, config, seed=0)
    table = table.replace(compression="none", rate_limiter=reverie.rate_limiters.MinSize(1))
    with reverie.Server([table], listen=False) as server:
        client = server.client()
        learner = dqn.make_learner(spec, config, client, seed=0, watch=Stopwatch())
        actor = dqn.make_actor(spec, config, client, learner, index=0, seed=0, watch=Stopwatch())
        while actor.env_steps < 600:
            actor.act()
        actor.settle()
        info = client.info().tables["replay"]
        actor.close()
    frame = 12 * 14
    # An episode of six steps has seven frames; in each item apart there would be nine.
    assert frame < info.size_bytes / info.num_inserts < 2 * frame


def test_agents_of_q_values_number_vectors_of_choices_and_refuse_too_many_by_name():
    dqn, ppo = agents.find("dqn"), agents.find("ppo")
    spec, data, _, _ = table_of("Choices", dqn)
    assert spec.num_actions == 6
    assert set(data["action"]) <= set(range(6))
    assert len(set(data["action"])) > 3
    many = describe(id_of("ManyChoices"))
    with pytest.raises(UnsupportedEnvironmentError, match=r"1,100 combinations: dqn .* at most 1,024; ppo and impala"):
        dqn.check(many)
    ppo.check(many)
    own = dataclasses.replace(dqn, any_space=False, name="mine")
    with pytest.raises(UnsupportedEnvironmentError, match="mine picks one number"):
        own.check(spec)
    with pytest.raises(UnsupportedEnvironmentError, match=r"camera \(image of shape \(16, 16, 3\)\).*Agent.any_space"):
        own.check(describe(id_of("Nest")))
    with pytest.raises(UnsupportedEnvironmentError, match="mine does not normalise"):
        own.check(describe("CartPole-v1", EnvSettings(normalise_observations=True)))


SETTINGS = {
    "dqn": "Nest",
    "apex-dqn": "Nest",
    "ppo": "Nest",
    "impala": "Nest",
    "cql": "Nest",
    "sac": "NestSteered",
    "cql-sac": "NestSteered",
    "td3": "NestSteered",
    "ddpg": "NestSteered",
    "apex-dpg": "NestSteered",
}


@pytest.mark.long
@pytest.mark.parametrize("name", SETTINGS)
def test_every_agent_learns_from_a_nest_with_normalised_numbers_and_rewards_and_saves_their_statistics(name, tmp_path):
    agent, env_id = agents.find(name), id_of(SETTINGS[name])
    preset = agent.load_preset(env_id)
    small = {
        "learning_starts": 20,
        "batch_size": 8,
        "hidden": (8,),
        "policy_hidden": (8,),
        "critic_hidden": (8,),
        "capacity": 1_000,
        "random_steps": 5,
        "unroll_length": 8,
        "queue_capacity": 32,
        "num_actors": 1,
        "envs_per_actor": 2,
        "samples_per_insert": 1.0,
        "epochs": 2,
    }
    known = {field.name for field in dataclasses.fields(preset.config)}
    config = dataclasses.replace(preset.config, **{k: v for k, v in small.items() if k in known})
    run = dataclasses.replace(
        preset.run,
        max_env_steps=120,
        evaluate_every=120,
        screening_episodes=1,
        confirmation_episodes=1,
        target_return=None,
        threads=1,
    )
    made = EnvSettings(normalise_observations=True, normalise_rewards=True)
    result = train(agent, env_id, config=config, run=run, environment=made, folder=tmp_path)
    assert result.learner["updates"] > 0
    policy = reverie.load_policy(tmp_path)
    named = dict(policy.module.named_parameters())
    counts = {key: one.item() for key, one in named.items() if key.endswith("moments.count")}
    assert counts
    assert min(counts.values()) > 0
    assert len(set(counts.values())) == 1, "every network has the same statistics"
    before = {key: one.clone() for key, one in named.items()}
    evaluator = Evaluator(policy.spec, 1)
    evaluator.evaluate(policy, [7])
    evaluator.close()
    assert all(torch.equal(one, before[key]) for key, one in named.items()), "evaluations change no statistic"
    again = reverie.load_policy(policy.save(tmp_path / "policy.safetensors"))
    NEST.seed(3)
    seen = [NEST.sample() for _ in range(3)]
    batch = {
        "camera": np.stack([one["camera"] for one in seen]),
        "joints": (np.stack([one["joints"][0] for one in seen]), np.array([one["joints"][1] for one in seen])),
        "switches": np.stack([one["switches"] for one in seen]),
    }
    actions = again(batch)
    assert np.array_equal(actions, policy(batch))
    assert np.allclose(actions[1], policy(seen[1]), atol=1e-4), "another shape adds in another order"
    with pytest.raises(ValueError, match="lacks switches"):
        policy({"camera": batch["camera"], "joints": batch["joints"]})
    with pytest.raises(ValueError, match="the observation is a list of 3, and this policy reads a dict with camera"):
        policy(seen)
    with pytest.raises(ValueError, match=r"^joints/0 has nan, and a policy takes finite numbers"):
        policy({**seen[0], "joints": (seen[0]["joints"][0] * np.nan, 5)})
    for wrong in (8, 4):
        with pytest.raises(ValueError, match=rf"joints/1 has the category {wrong}, and this policy takes 5 to 7"):
            policy({**seen[0], "joints": (seen[0]["joints"][0], wrong)})
    with pytest.raises(ValueError, match="joints/1 has the category 9"):
        policy({**batch, "joints": (batch["joints"][0], np.array([5, 9, 6]))})
    with pytest.raises(ValueError, match=r"camera has shape \(3, 16, 16\)"):
        policy({**batch, "camera": batch["camera"][..., 0]})


def test_normalised_rewards_are_raw_in_the_table_and_one_deviation_in_the_learner():
    apex = agents.find("apex-dqn")
    _, data, learner, _ = table_of("Loud", apex, normalise_rewards=True)
    assert set(np.unique(data["reward"] / 50)) - {0.0}, "the table has the environment's own rewards"
    deviation = learner._statistics.reward_deviation()
    assert 10 < deviation < 500
    scaled = learner._statistics.scaled({"reward": torch.tensor([50.0])})["reward"]
    assert scaled.item() == pytest.approx(50 / deviation)
    assert np.abs(data["discounted_return"]).max() > 50


def test_the_first_reward_after_many_steps_without_one_is_ten_deviations_and_no_more():
    """The deviation of equal returns is next to 0."""
    apex = agents.find("apex-dqn")
    spec, data, learner, _ = table_of("Loud", apex, normalise_rewards=True)
    one = Statistics([initialised(lambda: ObservationReader(spec), 0)])
    one.merge({**data, "discounted_return": np.zeros_like(data["discounted_return"])})
    assert one.reward_deviation() == pytest.approx(1e-4)
    first = one.scaled({"reward": torch.tensor([0.0, 1.0, -1.0])})["reward"]
    assert first.tolist() == [0.0, 10.0, -10.0]
    deviation = learner._statistics.reward_deviation()
    many = torch.tensor([9.0, 11.0]) * deviation
    assert learner._statistics.scaled({"reward": many})["reward"].tolist() == pytest.approx([9.0, 10.0])


def test_the_first_batch_is_in_deviations_of_its_own_returns_and_they_count_once():
    spec, data, _, _ = table_of("Loud", agents.find("apex-dqn"), normalise_rewards=True)
    readers = [initialised(lambda: ObservationReader(spec), seed) for seed in (0, 1)]
    one, returns = Statistics(readers), np.asarray(data["discounted_return"])
    reward = torch.as_tensor(data["reward"])
    expected = (reward / float(returns.std())).clip(-10.0, 10.0)
    torch.testing.assert_close(one.scaled({**data, "reward": reward})["reward"], expected, rtol=1e-4, atol=1e-6)
    assert [reader.returns.count.item() for reader in readers] == [len(returns)] * 2, "also before it was learnt from"
    one.merge(data)
    assert [reader.returns.count.item() for reader in readers] == [len(returns)] * 2
    torch.testing.assert_close(one.scaled({"reward": reward})["reward"], expected, rtol=1e-4, atol=1e-6)
    one.merge(data)
    assert [reader.returns.count.item() for reader in readers] == [2 * len(returns)] * 2


def test_normalisation_that_could_have_no_effect_is_refused():
    with pytest.raises(UnsupportedEnvironmentError, match=r"normalise_observations is true, and .* have no numbers"):
        plan(agents.find("dqn"), id_of("Grid"), environment=EnvSettings(normalise_observations=True))
    with pytest.raises(UnsupportedEnvironmentError, match="gorila send gradients only"):
        plan(agents.find("gorila"), "CartPole-v1", environment=EnvSettings(normalise_rewards=True))


def test_a_row_with_a_category_that_the_space_does_not_have_is_refused():
    spec = describe("FrozenLake-v1")
    agent = agents.find("dqn")
    config = agent.load_preset(spec.env_id).config
    made = agent.make_policy(spec, config)
    policy = TrainedPolicy(agent, "dqn", spec, config, TrainingRun(0, 1, 1, None), made, None, np.random.default_rng(0))
    assert policy(np.array([[0], [15]], np.int32)).shape == (2,)
    for wrong in (np.array([16], np.int32), 16):
        with pytest.raises(ValueError, match="observation has the category 16, and this policy takes 0 to 15"):
            policy(wrong)


def test_a_vector_of_categories_is_checked_part_by_part():
    leaf = leaves_of(spaces.MultiDiscrete([3, 4], start=[1, 0]))[0]
    require_categories(leaf, np.array([[1, 0], [3, 3]]))
    with pytest.raises(ValueError, match="observation has the category 4, and this policy takes 1 to 3"):
        require_categories(leaf, np.array([[1, 0], [4, 3]]))
    with pytest.raises(ValueError, match="observation has the category 4, and this policy takes 0 to 3"):
        require_categories(leaf, np.array([3, 4]))


@pytest.mark.parametrize("name", ["Nest", "Choices", "Switches", "Grid", "Number"])
@pytest.mark.parametrize("agent", ["dqn", "ppo"])
def test_exported_files_compute_the_same_for_every_space(agent, name, tmp_path):
    spec = describe(id_of(name))
    agent = agents.find(agent)
    config = dataclasses.replace(agent.load_preset(spec.env_id).config, hidden=(8,))
    policy = TrainedPolicy(
        agent,
        agent.name,
        spec,
        config,
        TrainingRun(0, 1, 1, None),
        agent.make_policy(spec, config),
        tmp_path,
        np.random.default_rng(0),
    )
    for parameter in policy.module.parameters():
        parameter.data.uniform_(-0.3, 0.3, generator=torch.Generator().manual_seed(1))
    assert exports.to_torchscript(policy, tmp_path / "policy.pt") < 1e-4
    again = reverie.load_policy(policy.save(tmp_path / "policy.safetensors"))
    assert again.spec == spec
    env = make_one(spec)
    action = policy(env.reset(seed=1)[0])
    env.step(action)
    assert action.shape == ((len(spec.action_sizes),) if spec.action_sizes else ())
    raw = env.unwrapped.observation_space.sample()
    assert policy(raw).shape == action.shape
