"""Observations that are images: scaled, read by convolutions, stacked, and noted where they are read as vectors."""

import functools

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from random_spaces import BOX, Anything, id_of

import reverie
from reverie import agents
from reverie.agents.env_settings import EnvSettings
from reverie.agents.environments import describe, make_one, make_vector
from reverie.agents.inputs import ObservationReader
from reverie.agents.layers import initialised
from reverie.agents.observations import image_note
from reverie.agents.policies import TrainedPolicy
from reverie.agents.policy_records import TrainingRun
from reverie.runners import plan

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
