"""Policies of runs, checkpoints and files: what is loaded acts as what was trained."""

import dataclasses
import json
import re
import subprocess
import sys
from pathlib import Path

import gymnasium
import numpy as np
import pytest

torch = pytest.importorskip("torch")
safetensors = pytest.importorskip("safetensors")
from safetensors.numpy import load_file, save_file  # noqa: E402

import reverie  # noqa: E402
from reverie import agents  # noqa: E402
from reverie.agents import environments, policy_files  # noqa: E402
from reverie.agents.environments import EnvSpec  # noqa: E402
from reverie.agents.policies import TrainedPolicy  # noqa: E402
from reverie.agents.policy_files import KEY, describe  # noqa: E402
from reverie.agents.policy_records import PolicyError, TrainingRun  # noqa: E402
from reverie.runners import CheckpointError, train  # noqa: E402

ENVIRONMENTS = {"discrete": "CartPole-v1", "continuous": "Pendulum-v1", "any": "CartPole-v1"}
SMALL = {
    "num_actors": 1,
    "num_learners": 1,
    "envs_per_actor": 2,
    "learning_starts": 64,
    "batch_size": 8,
    "samples_per_insert": 8.0,
    "epochs": 2,
    "hidden": (8,),
    "policy_hidden": (8,),
    "critic_hidden": (8,),
    "random_steps": 16,
    "epsilon_base": 0.9,
    "unroll_length": 8,
    "sequence_length": 4,
    "sequence_period": 1,
    "burn_in": 2,
    "queue_capacity": 16,
    "steps_per_iteration": 16,
}
FRAMES = EnvSpec("ALE/Pong-v5", (4, 84, 84), "uint8", 6, "Discrete(6)", None, frame_stack=4, reward_bound=1.0)


def trained(name, folder, **changes):
    """A short run of a tiny agent into `folder`; returns its result and the evaluator's policy."""
    agent = agents.find(name)
    preset = agent.load_preset(ENVIRONMENTS[agent.actions])
    known = {one.name for one in dataclasses.fields(preset.config)}
    config = dataclasses.replace(preset.config, **{k: v for k, v in {**SMALL, **changes}.items() if k in known})
    run = dataclasses.replace(
        preset.run, max_env_steps=160, evaluate_every=160, screening_episodes=1, confirmation_episodes=1, threads=1
    )
    made = []

    def make_policy(spec, config):
        made.append(agent.make_policy(spec, config))
        return made[-1]

    watched = dataclasses.replace(agent, make_policy=make_policy)
    result = train(watched, ENVIRONMENTS[agent.actions], config=config, run=run, seed=3, folder=folder)
    return result, made[1]  # the first is only checked


@pytest.fixture(scope="module")
def trained_runs(tmp_path_factory):
    """Runs of every agent, trained at the first request: `folder, result, evaluator = trained_runs(name)`."""
    known = {}

    def run(name):
        if name not in known:
            folder = tmp_path_factory.mktemp(name)
            known[name] = (folder, *trained(name, folder))
        return known[name]

    return run


def observations(spec, count, seed=0):
    return np.random.default_rng(seed).standard_normal((count, *spec.obs_shape)).astype(spec.obs_dtype)


def untrained(name="dqn", spec=None, seed=0, **changes):
    agent = agents.find(name)
    spec = spec or environments.describe(ENVIRONMENTS[agent.actions])
    preset = agent.load_preset(spec.env_id)
    known = {one.name for one in dataclasses.fields(preset.config)}
    config = dataclasses.replace(preset.config, **{k: v for k, v in {**SMALL, **changes}.items() if k in known})
    rng = np.random.default_rng(seed)
    run = TrainingRun(1, 2, 3, 4.0)
    return TrainedPolicy(agent, name, spec, config, run, agent.make_policy(spec, config), None, rng)


def first(policy, obs, **options):
    """The policy's actions at the first step of episodes."""
    if not policy.recurrent:
        return policy(obs, **options)
    count = None if obs.shape == policy.spec.obs_shape else len(obs)
    return policy.step(obs, policy.initial_state(count), **options)[0]


def test_the_error_of_a_process_without_the_environment_of_a_run_names_the_file_that_needs_none(tmp_path):
    env_id = "ReverieElsewhere-v0"
    gymnasium.register(env_id, "gymnasium.envs.classic_control:CartPoleEnv")
    settings = {"max_env_steps": 40, "learning_starts": 20, "target_return": None, "compile": "off"}
    result = reverie.train("dqn", env_id, folder=tmp_path / "run", **settings)
    result.policy.save(tmp_path / "policy.safetensors")
    spec = gymnasium.registry.pop(env_id)
    with pytest.raises(
        environments.UnknownEnvironmentError, match=f"no environment '{env_id}': .* registers it"
    ) as told:
        reverie.load_policy(tmp_path / "run")
    assert "the .safetensors file that `save` of the policy writes is loaded without the environment" in str(told.value)
    assert reverie.load_policy(tmp_path / "policy.safetensors")(np.zeros(4, np.float32)).shape == ()
    gymnasium.register(env_id, "no_such_simulator:Env")
    with pytest.raises(ValueError, match="is loaded without the environment"):
        reverie.load_policy(tmp_path / "run")
    gymnasium.registry.pop(env_id)
    assert spec.id == env_id


@pytest.mark.long
@pytest.mark.parametrize("name", agents.BUILT_IN)
def test_the_policy_of_a_run_acts_as_its_evaluator(name, trained_runs, tmp_path):
    folder, result, evaluator = trained_runs(name)
    policy = reverie.load_policy(folder)
    obs = observations(policy.spec, 32)
    assert evaluator.module is not policy.module
    assert result.learner["updates"] > 0
    expected = evaluator(obs)
    for one in (policy, reverie.load_policy(policy.path), reverie.load_policy(policy.save(tmp_path / "p.safetensors"))):
        actions = first(one, obs)
        assert actions.dtype == expected.dtype
        assert (actions == expected).all()
        assert (one.run.seed, one.run.env_steps, one.run.updates) == (3, result.env_steps, result.weights.version)
        assert one.spec == policy.spec
        assert one.config == policy.config == result.topology.config


@pytest.mark.parametrize("name", agents.BUILT_IN)
def test_one_observation_gives_the_action_of_a_batch_of_one(name, trained_runs):
    policy = reverie.load_policy(trained_runs(name)[0])
    (obs,) = observations(policy.spec, 1)
    alone, batch = first(policy, obs), first(policy, obs[None])
    assert (alone == batch[0]).all()
    assert alone.shape == ((policy.spec.action_size,) if policy.spec.action_size else ())
    assert first(policy, np.empty((0, *policy.spec.obs_shape), np.float32)).shape[0] == 0


@pytest.mark.parametrize("name", agents.BUILT_IN)
def test_the_seed_decides_sampled_actions_and_greedy_ones_use_no_random_numbers(name, trained_runs):
    folder = trained_runs(name)[0]
    one, same, other = (reverie.load_policy(folder, seed=seed) for seed in (5, 5, 6))
    obs = observations(one.spec, 2_000)
    first(same, obs)
    sampled = first(one, obs, greedy=False)
    assert (sampled == first(same, obs, greedy=False)).all()
    assert (sampled != first(other, obs, greedy=False)).any()
    assert (sampled != first(one, obs)).any()
    assert sampled.dtype == first(one, obs).dtype
    if one.spec.action_size:
        assert (sampled >= np.array(one.spec.action_low)).all()
        assert (sampled <= np.array(one.spec.action_high)).all()


def test_sampled_actions_follow_the_exploration_settings_of_an_agent():
    never, always = untrained(epsilon_end=0.0), untrained(epsilon_end=1.0)
    obs = observations(never.spec, 4_000)
    assert (never(obs, greedy=False) == never(obs)).all()
    # Five standard deviations of a count of coin tosses.
    assert abs((always(obs, greedy=False) == 0).sum() - 2_000) < 5 * np.sqrt(1_000)
    quiet = untrained("td3", noise_sigma=0.0)
    obs = observations(quiet.spec, 8)
    assert (quiet(obs, greedy=False) == quiet(obs)).all()


def test_an_observation_of_another_shape_or_kind_is_refused_and_of_its_kind_converted():
    policy = untrained()
    obs = observations(policy.spec, 3)
    assert (policy(obs.astype(np.float64)) == policy(obs)).all()
    assert (policy(obs.tolist()) == policy(obs)).all()
    for shape in ((), (3,), (2, 5), (1, 2, 4)):
        with pytest.raises(ValueError, match=r"observations have shape .*, and this policy takes \(4,\), or a batch"):
            policy(np.zeros(shape, np.float32))
    with pytest.raises(TypeError, match="observations are complex64, and this policy takes float32"):
        policy(np.zeros(4, np.complex64))
    with pytest.raises(TypeError, match="observations are float32, and this policy takes uint8"):
        untrained("dqn", FRAMES)(np.zeros((4, 84, 84), np.float32))


@pytest.mark.parametrize("number", [np.nan, -np.inf, 1e300])
def test_an_observation_that_is_not_finite_is_refused_as_that_of_an_environment(number, recwarn):
    policy, wrong = untrained(), np.zeros((3, 4))
    wrong[1:, 2] = number
    with pytest.raises(ValueError, match=r"^observation 1 has (nan|-?inf), and a policy takes finite numbers"):
        policy(wrong)
    with pytest.raises(ValueError, match=r"^the observation has (nan|-?inf), and"):
        policy(wrong[1])
    assert not recwarn.list, "the conversion to infinity has no warning of its own"


def test_an_observation_that_the_dtype_of_the_policy_cannot_hold_is_refused():
    wrong = np.zeros((4, 84, 84), np.uint16)
    policy = untrained("dqn", FRAMES)
    policy(wrong)
    wrong[0, 0, 0] = 256
    with pytest.raises(ValueError, match="the observation has the number 256, which uint8 of this policy cannot hold"):
        policy(wrong)


def test_read_only_and_reversed_observations_are_taken(recwarn):
    policy = untrained()
    obs = observations(policy.spec, 3)
    obs.setflags(write=False)
    assert (policy(obs[::-1]) == policy(obs)[::-1]).all()
    assert list(recwarn) == []


def test_weights_in_channels_last_survive_a_file(tmp_path):
    policy = untrained("apex-dqn", FRAMES, hidden=(8,))
    frames = np.random.default_rng(0).integers(0, 255, (4, 4, 84, 84), np.uint8)
    for parameter in policy.module.parameters():
        torch.nn.init.normal_(parameter.data, generator=torch.Generator().manual_seed(0))
    loaded = reverie.load_policy(policy.save(tmp_path / "frames.safetensors"))
    assert (loaded.policy.q_values(frames) == policy.policy.q_values(frames)).all()


def test_a_file_is_loaded_without_the_run_and_without_the_package_of_the_environment(tmp_path):
    policy = untrained()
    policy = dataclasses.replace(policy, spec=dataclasses.replace(policy.spec, env_id="a_missing_package:Env-v0"))
    loaded = reverie.load_policy(policy.save(tmp_path / "p.safetensors"))
    assert loaded.spec.env_id == "a_missing_package:Env-v0"
    assert (loaded(observations(policy.spec, 8)) == policy(observations(policy.spec, 8))).all()


@pytest.fixture
def file(tmp_path):
    """A policy's file; `file(change)` writes it again with its metadata changed in place, or its weights."""
    path = untrained().save(tmp_path / "p.safetensors")
    weights = load_file(path)

    def write(change=lambda fields, weights: None, raw=None):
        fields = json.loads(describe(untrained().record))
        changed = dict(weights)
        change(fields, changed)
        save_file(changed, path, {KEY: json.dumps(fields) if raw is None else raw})
        return path

    return write


def test_the_guide_has_the_fields_of_a_file_and_its_format():
    page = (Path(__file__).resolve().parents[3] / "docs" / "guides" / "use-a-policy.md").read_text()
    (table,) = re.findall(r"^\| field \|.*?\n\n", page, re.MULTILINE | re.DOTALL)
    rows = [
        (re.findall(r"`(\w+)`", names), text) for names, text in re.findall(r"^\| (`[^|]*) \| (.*) \|$", table, re.M)
    ]
    assert [name for names, _ in rows for name in names] == list(json.loads(describe(untrained().record)))
    assert rows[0] == (["format"], str(policy_files.FORMAT))


def test_a_file_whose_fields_are_unchanged_is_loaded(file):
    assert reverie.load_policy(file()).agent.name == "dqn"


SECTIONS = {
    "reverie.policy": ("agent", "reference", "settings", "environment", "run"),
    "environment": tuple(one.name for one in dataclasses.fields(EnvSpec)),
    "run": tuple(one.name for one in dataclasses.fields(TrainingRun)),
}
EVERY = [(section, name) for section, names in SECTIONS.items() for name in names]


def part(fields, section):
    return fields if section == KEY else fields[section]


OF_LATER_VERSIONS = [("environment", "action_dtype")]
"""Fields that files of earlier versions lack."""


@pytest.mark.parametrize(("section", "name"), [one for one in EVERY if one not in OF_LATER_VERSIONS])
def test_a_missing_field_is_refused_by_its_name(file, section, name):
    path = file(lambda fields, weights: part(fields, section).pop(name))
    with pytest.raises(PolicyError, match=f"lacks the field {name} of {section}"):
        reverie.load_policy(path)


@pytest.mark.parametrize(("section", "name"), [one for one in EVERY if one[0] != KEY])
def test_a_field_of_another_type_is_refused_by_its_name(file, section, name):
    path = file(lambda fields, weights: part(fields, section).update({name: {"no": "value"}}))
    nested = f"lacks the field wrappers of {section}.{name}"  # a record of its own
    with pytest.raises(PolicyError, match=f"has the field {name} of {section} as .*, and it must be|{nested}"):
        reverie.load_policy(path)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("obs_shape", []),
        ("obs_shape", [4, 0]),
        ("obs_shape", [True]),
        ("obs_dtype", "object"),
        ("num_actions", 0),
        ("num_actions", True),
        ("action_low", [float("-inf")]),
        ("action_high", [1.0]),
        ("frame_stack", 4_000),
    ],
)
def test_a_field_with_a_value_that_no_environment_has_is_refused_by_its_name(file, name, value):
    path = file(lambda fields, weights: fields["environment"].update({name: value}))
    with pytest.raises(PolicyError, match=f"has the field {name} of environment as"):
        reverie.load_policy(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: f.update(format=3), "has format 3, and this version reads 2"),
        (lambda f: f.update(format=True), "has format True, and this version reads 2"),
        (lambda f: f.pop("format"), "has format None, and this version reads 2"),
        (lambda f: f.update(more=1), "has an unknown field more of reverie.policy"),
        (lambda f: f["run"].update(more=1), "has an unknown field more of run"),
        (lambda f: f.update(agent=7), "has the field agent of reverie.policy as 7, and it must be a text"),
        (lambda f: f.update(agent="ppo"), "is of the agent ppo, and dqn was named"),
        (lambda f: f.update(agent="dqm", reference="dqm"), "has the agent 'dqm': no agent 'dqm'; did you mean dqn"),
        (lambda f: f.update(settings=[]), "has settings that is no JSON object"),
        (lambda f: f["settings"].pop("hidden"), r"\[settings\] is missing hidden"),
        (lambda f: f["settings"].update(hidden="8"), r"\[settings\] hidden is '8', and must be a list of integers"),
        (
            lambda f: f["settings"].update(hiden=[8]),
            r"\[settings\] has an unknown setting 'hiden'; did you mean hidden",
        ),
        (lambda f: f["settings"].update(target_period=0), r"\[settings\] target_period is 0"),
        (lambda f: f["environment"].update(num_actions=None), "does not fit its agent: actions of CartPole-v1 are"),
    ],
)
def test_a_wrong_field_is_refused_by_its_name(file, change, message):
    path = file(lambda fields, weights: change(fields))
    with pytest.raises(PolicyError, match=message) as caught:
        reverie.load_policy(path)
    assert caught.value.path == path
    assert str(path) in str(caught.value)


def test_weights_that_are_missing_unknown_or_of_another_form_are_refused_by_name(file):
    name = "1.weight"
    assert name in load_file(file())
    cases = {
        "it lacks 1.weight": lambda f, w: w.pop(name),
        "it also has more": lambda f, w: w.update(more=np.zeros(1, np.float32)),
        r"has the weight 1.weight as float32 \(8, 2\), and its": lambda f, w: w.update({name: w[name].T.copy()}),
        r"has the weight 1.weight as float64 \(2, 8\), and its": lambda f, w: w.update({name: w[name].astype("f8")}),
    }
    for message, change in cases.items():
        with pytest.raises(PolicyError, match=message):
            reverie.load_policy(file(change))


def test_a_file_that_is_damaged_missing_or_of_another_kind_is_refused(file, tmp_path):
    with pytest.raises(PolicyError, match=r"has metadata reverie.policy that are not JSON"):
        reverie.load_policy(file(raw="{"))
    with pytest.raises(PolicyError, match=r"has reverie\.policy that is no JSON object"):
        reverie.load_policy(file(raw="[]"))
    path = file()
    path.write_bytes(path.read_bytes()[:-7])
    with pytest.raises(PolicyError, match="is damaged, or is not a safetensors file"):
        reverie.load_policy(path)
    save_file({"w": np.zeros(3)}, path)
    with pytest.raises(PolicyError, match=r"without the metadata reverie\.policy"):
        reverie.load_policy(path)
    with pytest.raises(PolicyError, match="cannot be read"):
        reverie.load_policy(tmp_path / "nothing.safetensors")
    other = tmp_path / "state.json"
    other.write_text("{}")
    with pytest.raises(PolicyError, match="is a file, and neither a run's folder"):
        reverie.load_policy(other)
    with pytest.raises(CheckpointError, match="is missing: there is no such folder; name a run's folder"):
        reverie.load_policy(tmp_path / "nothing")


def test_a_policy_is_saved_whole_or_not_at_all(tmp_path, monkeypatch):
    policy = untrained()
    with pytest.raises(PolicyError, match=r"its name must end in \.safetensors"):
        policy.save(tmp_path / "policy.pt")
    path = policy.save(tmp_path / "new" / "p.safetensors")
    before = path.read_bytes()

    def fail(path, data):
        path.write_text("half of it")
        raise OSError(28, "No space left on device", str(path))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", fail)
        with pytest.raises(OSError, match="No space left"):
            policy.save(path)
    assert [path.read_bytes()] == [one.read_bytes() for one in path.parent.iterdir()] == [before]


def test_a_policy_is_shown_in_one_line(tmp_path):
    policy = untrained()
    assert repr(policy) == "<TrainedPolicy of dqn on CartPole-v1: 2 steps, 3 updates>"
    path = policy.save(tmp_path / "p.safetensors")
    assert repr(reverie.load_policy(path)) == f"<TrainedPolicy of dqn on CartPole-v1: 2 steps, 3 updates, from {path}>"


MINE = """
import dataclasses
from reverie.agents.dqn import agent as dqn
from reverie.agents.discrete import QPolicy

agent = dataclasses.replace(dqn, name="mine-own")
other = dataclasses.replace(dqn, name="other")
"""


def test_an_agent_of_another_package_is_named_by_the_reader_and_never_imported_by_a_file(tmp_path, monkeypatch):
    (tmp_path / "policy_tests_mine.py").write_text(MINE)
    monkeypatch.syspath_prepend(tmp_path)
    mine = agents.find("policy_tests_mine:agent")
    policy = dataclasses.replace(untrained(), agent=mine, reference="policy_tests_mine:agent")
    path = policy.save(tmp_path / "p.safetensors")
    monkeypatch.delitem(sys.modules, "policy_tests_mine")
    reason = (
        r"is of the agent policy_tests_mine:agent, and a file imports no module by itself: name it, as"
        r" agent='policy_tests_mine:agent' or --agent policy_tests_mine:agent$"
    )
    with pytest.raises(PolicyError, match=reason):
        reverie.load_policy(path)
    assert "policy_tests_mine" not in sys.modules
    obs = observations(policy.spec, 8)
    for agent in ("policy_tests_mine:agent", mine):
        assert (reverie.load_policy(path, agent=agent)(obs) == policy(obs)).all()
    with pytest.raises(PolicyError, match="is of the agent mine-own, and other was named"):
        reverie.load_policy(path, agent="policy_tests_mine:other")
    with pytest.raises(TypeError, match="agent must be an agent or its name, got 7"):
        reverie.load_policy(path, agent=7)


@pytest.mark.parametrize("whole_run", [True, False])
def test_a_checkpoint_of_an_agent_of_another_package_is_loaded_with_the_agent(tmp_path, monkeypatch, whole_run):
    (tmp_path / "policy_tests_theirs.py").write_text(MINE)
    monkeypatch.syspath_prepend(tmp_path)
    theirs = agents.find("policy_tests_theirs:agent")
    folder = tmp_path / "run"
    options = {"max_env_steps": 60, "evaluate_every": 60, "screening_episodes": 1, "confirmation_episodes": 1}
    result = reverie.train(theirs, "CartPole-v1", config=untrained().config, folder=folder, **options)
    path = folder if whole_run else next((folder / "checkpoints").glob("0*"))
    reason = (
        "is of the agent mine-own, which is neither an agent of Reverie nor one that an installed package lists: name"
        " it, as agent='module:agent' or --agent module:agent$"
    )
    with pytest.raises(CheckpointError, match=reason):
        reverie.load_policy(path)
    obs = observations(result.policy.spec, 8)
    assert (reverie.load_policy(path, agent=theirs)(obs) == result.policy(obs)).all()


class Bare:
    """A policy of another package that has only what the evaluator needs."""

    def load(self, weights):
        pass

    def __call__(self, observations):
        return np.zeros(len(observations), np.int64)


def test_a_policy_without_a_network_acts_and_what_it_lacks_is_named(tmp_path):
    policy = dataclasses.replace(untrained(), policy=Bare())
    obs = observations(policy.spec, 4)
    assert (policy(obs) == 0).all()
    with pytest.raises(TypeError, match=r"the policy of agent dqn has no sample; reverie\.agents\.core\.Policy"):
        policy(obs, greedy=False)
    with pytest.raises(TypeError, match="the policy of agent dqn has no module"):
        policy.save(tmp_path / "p.safetensors")


@pytest.mark.parametrize("arguments", [{"seed": -1}, {"seed": 1.5}, {"path": 7}])
def test_bad_arguments_are_refused_by_name(tmp_path, arguments):
    with pytest.raises((TypeError, ValueError), match=next(iter(arguments))):
        reverie.load_policy(**{"path": tmp_path, **arguments})


@pytest.mark.long
def test_without_pytorch_the_extra_is_named():
    code = (
        "import sys, importlib.util as util, reverie, reverie.policies as p\n"
        "p.find_spec = lambda name: None if name == 'torch' else util.find_spec(name)\n"
        "try: reverie.load_policy('x')\nexcept ImportError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=200, check=True)
    assert done.stdout.strip() == 'reverie.load_policy needs torch: pip install "reverie[agents]"'
