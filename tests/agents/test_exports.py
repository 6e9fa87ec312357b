"""Exported policies: every file computes what PyTorch computes, or is not written."""

import contextlib
import dataclasses
import functools
import json

import numpy as np
import pytest

gymnasium = pytest.importorskip("gymnasium")
torch = pytest.importorskip("torch")
pytest.importorskip("safetensors")

from reverie import agents, load_policy  # noqa: E402
from reverie.agents import environments, exports, rounding  # noqa: E402
from reverie.agents.env_settings import EnvSettings  # noqa: E402
from reverie.agents.environments import EnvSpec  # noqa: E402
from reverie.agents.policies import TrainedPolicy  # noqa: E402
from reverie.agents.policy_files import KEY  # noqa: E402
from reverie.agents.policy_records import PolicyError, TrainingRun  # noqa: E402

ENVIRONMENTS = {"discrete": "CartPole-v1", "continuous": "Pendulum-v1", "any": "CartPole-v1"}
FRAMES = EnvSpec("ALE/Pong-v5", (4, 84, 84), "uint8", 6, "Discrete(6)", None, frame_stack=4, reward_bound=1.0)
KINDS = ("onnx", "torchscript", "exported_program")
# The exporters' modules take seconds to import, and the table of operators is made once: in one worker.
pytestmark = [pytest.mark.long, pytest.mark.xdist_group("exports")]
RECURRENT = ("r2d2",)
# Agents that share their class of policies with another, which is exported for both.
LIKE_ANOTHER = {"gorila": "dqn", "cql": "dqn", "cql-sac": "sac", "impala": "ppo", "ddpg": "td3"}
NAMES = [one for one in agents.BUILT_IN if one not in RECURRENT and one not in LIKE_ANOTHER]


@pytest.fixture(scope="module", autouse=True)
def one_table_of_operators():
    """The exporter to ONNX makes its table of all operators for each file, for as long as the rest of the export."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        with contextlib.suppress(ImportError, AttributeError):  # a private name: without it, tests only take longer
            from torch.onnx._internal.exporter._registration import ONNXRegistry

            monkeypatch.setattr(
                ONNXRegistry, "from_torchlib", staticmethod(functools.cache(ONNXRegistry.from_torchlib))
            )
        yield


def error_bound(compute, parameters, inputs):
    """The bounds of one result of one input."""
    return rounding.error_bounds(lambda one: (compute(one),), parameters, (inputs,))[0]


def policy_of(name, spec=None, **changes):
    agent = agents.find(name)
    spec = spec or environments.describe(ENVIRONMENTS[agent.actions])
    config = agent.load_preset(spec.env_id).config
    small = {field: (8,) for field in ("hidden", "policy_hidden", "critic_hidden") if hasattr(config, field)}
    config = dataclasses.replace(config, **{**small, **changes})
    policy = agent.make_policy(spec, config)
    generator = torch.Generator().manual_seed(0)
    for parameter in policy.module.parameters():
        torch.nn.init.normal_(parameter, 0.0, 0.3, generator=generator)
    run, rng = TrainingRun(0, 0, 0, 0.0), np.random.default_rng(0)
    return TrainedPolicy(agent, name, spec, config, run, policy, None, rng)


def write(kind, policy, folder):
    if kind == "onnx":
        pytest.importorskip("onnxruntime")
        pytest.importorskip("onnxscript")
    path = folder / kind
    getattr(exports, f"to_{kind}")(policy, path)
    return path


def loaded(kind, path):
    """A function from observations to the file's outputs, by the name of each."""
    if kind == "onnx":
        import onnxruntime

        session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        names = [one.name for one in session.get_outputs()]
        return lambda obs: dict(zip(names, session.run(None, {exports.INPUT: obs}), strict=True))
    module = (
        torch.jit.load(path.rename(f"{path}.pt"))
        if kind == "torchscript"
        else torch.export.load(path.rename(f"{path}.pt2")).module()
    )
    return lambda obs: {
        name: one.numpy() for name, one in zip(("action", "scores"), module(torch.from_numpy(obs)), strict=False)
    }


def observations(spec, count):
    return exports._observations(dataclasses.replace(policy_of("dqn"), spec=spec), count).numpy()


def test_agents_that_are_not_exported_have_the_policy_class_of_one_that_is():
    for name, other in LIKE_ANOTHER.items():
        modules = [policy_of(one).module for one in (name, other)]
        kinds = [[type(layer) for layer in module.modules()] for module in modules]
        assert kinds[0] == kinds[1], name
        assert other not in LIKE_ANOTHER


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", NAMES)
def test_a_file_takes_the_actions_of_the_policy_in_batches_of_any_size(name, kind, tmp_path):
    policy = policy_of(name)
    run = loaded(kind, write(kind, policy, tmp_path))
    for count in (1, 2, 5, 64):
        obs = observations(policy.spec, count)
        outputs, expected = run(obs), policy(obs)
        parameters = list(policy.module.parameters())
        bound = error_bound(policy.policy.forward, parameters, torch.from_numpy(obs)).numpy()
        if policy.agent.actions == "continuous":
            assert outputs.keys() == {"action"}
            assert outputs["action"].dtype == np.float32
            assert (np.abs(outputs["action"] - expected) <= bound).all()
            continue
        assert outputs.keys() == {"action", "scores"}
        assert outputs["action"].dtype == np.int64
        best = np.sort(outputs["scores"], axis=1)
        clear = best[:, -1] - best[:, -2] > 2 * bound.max(axis=1)
        assert (outputs["action"] == expected)[clear].all()
        assert clear.mean() > 0.9


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", RECURRENT)
def test_a_file_of_a_policy_with_a_state_plays_episodes_as_the_policy(name, kind, tmp_path):
    policy = policy_of(name)
    path = write(kind, policy, tmp_path)
    if kind == "onnx":
        import onnxruntime

        session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        assert [one.name for one in session.get_inputs()] == [exports.INPUT, exports.STATE]
        assert [one.name for one in session.get_outputs()] == ["action", "scores", exports.NEXT_STATE]
        run = lambda obs, state: session.run(None, {exports.INPUT: obs, exports.STATE: state})  # noqa: E731
    else:
        load = torch.jit.load if kind == "torchscript" else lambda path: torch.export.load(path).module()
        module = load(path.rename(f"{path}.pt2"))
        run = lambda obs, state: [one.numpy() for one in module(torch.from_numpy(obs), torch.from_numpy(state))]  # noqa: E731
    for count in (1, 2, 64):
        state = theirs = policy.initial_state(count)
        for seed in range(4):
            obs = np.random.default_rng(seed).normal(size=(count, 4)).astype(np.float32)
            action, scores, theirs = run(obs, theirs)
            actions, after = policy.step(obs, state)
            clear = np.abs(scores[:, 0] - scores[:, 1]) > 1e-3
            assert (action == actions)[clear].all()
            assert clear.mean() > 0.9 or count < 64
            np.testing.assert_allclose(theirs[clear], after[clear], atol=1e-4)
            state = theirs = after  # from the same state on, so that a close choice is one step's alone


class Driving(gymnasium.Env):
    """A nest of several dtypes, whose categories have a start."""

    observation_space = gymnasium.spaces.Dict(
        {
            "speed": gymnasium.spaces.Box(-9, 9, (4,), np.float32),
            "gear": gymnasium.spaces.Discrete(3, start=1),
            "image": gymnasium.spaces.Box(0, 255, (12, 12, 3), np.uint8),
        }
    )
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        return self.observation_space.sample(), 0.0, False, False, {}


gymnasium.register("ReverieDriving-v0", Driving, max_episode_steps=9)


def test_a_file_takes_the_parts_of_a_nest_as_one_row_of_numbers_in_the_order_of_parts(tmp_path):
    policy = policy_of("dqn", environments.describe("ReverieDriving-v0"), hidden=(8,))
    Driving.observation_space.seed(3)
    nest = Driving.observation_space.sample()
    assert [part.name for part in policy.spec.parts] == ["gear", "image", "speed"]
    row = np.concatenate([[nest["gear"] - 1], nest["image"].ravel(), nest["speed"]]).astype(np.float32)
    action, scores = torch.jit.load(write("torchscript", policy, tmp_path))(torch.from_numpy(row[np.newaxis]))
    np.testing.assert_allclose(scores[0].numpy(), policy.q_values(nest), rtol=1e-5)
    assert action[0] == policy(nest)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["dqn", "apex-dqn"])
def test_policies_of_frames_are_exported(name, kind, tmp_path):
    policy = policy_of(name, FRAMES)
    outputs = loaded(kind, write(kind, policy, tmp_path))(observations(FRAMES, 2))
    assert outputs["scores"].shape == (2, 6)


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_has_the_normalised_layers_of_its_policy(kind, tmp_path):
    """Nine times the weights before the division are the same policy; without it they would be another."""
    policy, other = (policy_of("rainbow", spectral_norm=normalised, hidden=(8, 8)) for normalised in (True, False))
    obs = np.random.default_rng(0).uniform(-3, 3, (16, 4)).astype(np.float32)
    before = policy.policy.q_values(obs)
    for one in (policy, other):
        weight = next(p for name, p in one.module.named_parameters() if name.startswith("torso") and p.dim() == 2)
        plain = one.policy.q_values(obs)
        weight.data *= 9
    np.testing.assert_allclose(loaded(kind, write(kind, policy, tmp_path))(obs)["scores"], before, atol=1e-4)
    assert np.abs(other.policy.q_values(obs) - plain).max() > 0.1


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_has_the_running_statistics_of_its_policy(kind, tmp_path):
    """Scores of numbers that are three deviations away are those of a network without statistics, of three."""
    normalised = policy_of("dqn", environments.describe("CartPole-v1", EnvSettings(normalise_observations=True)))
    plain = policy_of("dqn")
    named = dict(normalised.module.named_parameters())
    moments = {name.rpartition(".")[2]: one.data for name, one in named.items() if ".moments." in name}
    moments["count"].fill_(100.0)
    moments["mean"].copy_(torch.tensor([10.0, -20.0, 5.0, 0.0]))
    moments["variance"].copy_(torch.tensor([4.0, 9.0, 0.25, 1.0]))
    layers = [one for name, one in named.items() if ".moments." not in name]
    for own, other in zip(layers, plain.module.parameters(), strict=True):
        own.data.copy_(other.data)
    deviations = np.random.default_rng(0).uniform(-3, 3, (16, 4)).astype(np.float32)
    obs = moments["mean"].numpy() + deviations * np.sqrt(moments["variance"].numpy())
    scores = loaded(kind, write(kind, normalised, tmp_path))(obs)["scores"]
    np.testing.assert_allclose(scores, plain.policy.q_values(deviations), atol=1e-3)
    assert np.abs(scores - plain.policy.q_values(obs)).max() > 0.1, "the twin: statistics that change nothing"


class Wrong:
    """A policy whose last weight differs between the export and what is compared with it."""

    def __init__(self, policy, difference):
        self._policy, self._difference = policy, difference
        self.module = policy.module

    def forward(self, observations):
        return self._policy.forward(observations)

    def __deepcopy__(self, memo):
        import copy

        other = copy.deepcopy(self._policy, memo)
        with torch.no_grad():
            last = list(other.module.parameters())[-1]
            last[-1] += self._difference
        return Wrong(other, 0.0)


@pytest.mark.parametrize(
    ("kind", "difference"),
    [
        *((kind, 0.01) for kind in KINDS),
        ("torchscript", float("nan")),
    ],
)
def test_a_file_with_a_wrong_weight_is_refused_and_an_older_file_stays(kind, difference, tmp_path):
    policy = policy_of("dqn")
    (tmp_path / kind).write_bytes(b"older")
    with pytest.raises(PolicyError, match=r"is not written: it differs from PyTorch by .*, and rounding by at most"):
        write(kind, dataclasses.replace(policy, policy=Wrong(policy.policy, difference)), tmp_path)
    assert [one.read_bytes() for one in tmp_path.iterdir()] == [b"older"]
    write(kind, dataclasses.replace(policy, policy=Wrong(policy.policy, 0.0)), tmp_path)
    assert (tmp_path / kind).read_bytes() != b"older"


def test_the_bound_holds_between_float32_and_float64_and_is_not_much_larger_than_its_terms():
    torch.manual_seed(0)
    for _ in range(5):
        layers = torch.nn.Sequential(
            torch.nn.Linear(50, 40), torch.nn.Tanh(), torch.nn.Linear(40, 30), torch.nn.ReLU(), torch.nn.Linear(30, 3)
        )
        inputs = torch.randn(20, 50)
        bound = error_bound(layers, list(layers.parameters()), inputs)
        with torch.no_grad():
            single = layers(inputs)
            exact = layers.double()(inputs.double())
        assert ((single - exact).abs() <= bound).all()
        assert bound.max() < 1e-2
        assert (bound > 0).all()


def test_the_bound_leaves_parameters_as_they_were():
    policy = policy_of("dqn")
    parameters = list(policy.module.parameters())
    error_bound(policy.policy.forward, parameters, torch.zeros(2, 4))
    assert not any(one.requires_grad for one in parameters)


def test_an_onnx_file_describes_its_policy_as_a_safetensors_file_does(tmp_path):
    onnx = pytest.importorskip("onnx")
    policy = policy_of("sac")
    model = onnx.load(write("onnx", policy, tmp_path))
    described = json.loads({one.key: one.value for one in model.metadata_props}[KEY])
    assert described["agent"] == "sac"
    assert described["environment"]["action_low"] == [-2.0]
    assert [one.name for one in model.graph.input] == ["observations"]


def test_without_its_extra_onnx_is_refused_before_a_file_is_written(tmp_path, monkeypatch):
    find = exports.find_spec
    monkeypatch.setattr(exports, "find_spec", lambda name: None if name == "onnxscript" else find(name))
    with pytest.raises(ImportError, match=r'an ONNX file needs onnxscript: pip install "reverie\[onnx\]"'):
        exports.to_onnx(policy_of("dqn"), tmp_path / "p.onnx")
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def reverie(tmp_path, monkeypatch):
    """Runs `reverie` in a folder."""
    testing = pytest.importorskip("typer.testing")
    from reverie.cli.app import app

    monkeypatch.chdir(tmp_path)
    return lambda *arguments: testing.CliRunner().invoke(app, [str(one) for one in arguments])


def test_the_command_writes_each_named_file_of_a_policy(reverie, tmp_path):
    policy = policy_of("dqn")
    policy.save(tmp_path / "p.safetensors")
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    names = {"--torchscript": "a.pt", "--exported-program": "b.pt2", "--safetensors": "c.safetensors"}
    names = {"--onnx": "d.onnx", **names}
    result = reverie("export", "p.safetensors", *(one for pair in names.items() for one in pair), "--json")
    assert result.exit_code == 0, result.stderr
    reported = json.loads(result.stdout.splitlines()[-1])
    assert (reported["policy"], reported["agent"]) == ("p.safetensors", "dqn")
    assert [one["file"] for one in reported["files"]] == list(names.values())
    assert {one.name for one in tmp_path.iterdir()} == {"p.safetensors", *names.values()}
    assert all(one["size_bytes"] == (tmp_path / one["file"]).stat().st_size for one in reported["files"])
    obs = observations(policy.spec, 8)
    assert (load_policy("c.safetensors")(obs) == policy(obs)).all()
    outputs = loaded("onnx", tmp_path / "d.onnx")(obs)
    clear = np.abs(outputs["scores"][:, 0] - outputs["scores"][:, 1]) > 1e-3
    assert (outputs["action"] == policy(obs))[clear].all()
    assert clear.any()


def test_the_command_refuses_in_one_line(reverie, tmp_path, monkeypatch):
    policy_of("dqn").save(tmp_path / "p.safetensors")
    monkeypatch.setattr(exports, "find_spec", lambda name: None)
    cases = {
        "nothing to export: name a file with --onnx": (),
        "two of the files have the same name": ("--onnx", "a", "--torchscript", "./a"),
        "its name must end in .safetensors": ("--safetensors", "a"),
        'pip install "reverie[onnx]"': ("--onnx", "a.onnx"),
        "is of the agent dqn, and ppo was named": ("--torchscript", "a", "--agent", "ppo"),
    }
    for reason, options in cases.items():
        result = reverie("export", "p.safetensors", *options)
        assert result.exit_code == 2
        (line,) = result.stderr.splitlines()
        assert line.startswith("reverie: ")
        assert reason in line
    assert [one.name for one in tmp_path.iterdir()] == ["p.safetensors"]


def test_eval_plays_a_file_as_it_plays_its_run_and_refuses_another_environment(reverie, tmp_path):
    policy = policy_of("dqn")
    policy.save(tmp_path / "p.safetensors")
    result = reverie("eval", "p.safetensors", "--episodes", 2, "--json")
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout.splitlines()[-1])["num_episodes"] == 2
    other = dataclasses.replace(policy, spec=dataclasses.replace(policy.spec, obs_shape=(6,)))
    network = other.agent.make_policy(other.spec, other.config)
    dataclasses.replace(other, policy=network).save(tmp_path / "q.safetensors")
    result = reverie("eval", "q.safetensors")
    assert result.exit_code == 2
    assert "obs_shape is (4,) in CartPole-v1 here, and is (6,) where the policy was trained: install " in result.stderr
