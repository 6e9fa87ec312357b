"""Observations and actions of every space: packed into rows, read by networks, played by agents."""

import dataclasses

import numpy as np
import pytest
import torch
from gymnasium import spaces
from random_spaces import BOX, NEST, id_of, table_of

import reverie
from reverie import agents
from reverie.agents import exports
from reverie.agents.core import Stopwatch
from reverie.agents.env_settings import EnvSettings
from reverie.agents.environments import (
    UnsupportedEnvironmentError,
    describe,
    make_one,
)
from reverie.agents.inputs import ObservationReader, front, front_sizes
from reverie.agents.layers import initialised
from reverie.agents.observations import leaves_of, pack, part_of
from reverie.agents.policies import TrainedPolicy, require_categories
from reverie.agents.policy_records import TrainingRun
from reverie.runners import Evaluator, train


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


def test_a_space_that_no_network_reads_is_named():
    with pytest.raises(UnsupportedEnvironmentError, match=r"ReverieSequence-v0 cannot be read: the space is Sequence"):
        describe(id_of("Sequence"))
    with pytest.raises(UnsupportedEnvironmentError, match="must start at 0"):
        describe(id_of("Shifted"))


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
