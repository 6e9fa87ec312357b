"""Layers of a user in front of an agent's network."""

import dataclasses

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import reverie  # noqa: E402
from reverie import agents  # noqa: E402
from reverie.agents.env_settings import EnvSettings  # noqa: E402
from reverie.agents.environments import describe  # noqa: E402
from reverie.agents.inputs import front  # noqa: E402
from reverie.agents.layers import initialised  # noqa: E402
from reverie.runners import plan, train  # noqa: E402


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
        (f"{__name__}:Flat", "must return floating-point features"),
        (f"{__name__}:no_layers", "returns a str, and must return a nn.Module"),
        (f"{__name__}:Quadratic(width=-1)", "raised RuntimeError"),
    ],
)
def test_layers_that_do_not_fit_are_named_before_anything_starts(factory, reason):
    with pytest.raises(ValueError, match=reason) as caught:
        plan(agents.find("dqn"), "CartPole-v1", environment=EnvSettings(network=factory))
    assert factory in str(caught.value)
    with pytest.raises(ValueError, match="reads observations by itself: leave normalisation out"):
        EnvSettings(network=Quadratic, normalise_rewards=True)
