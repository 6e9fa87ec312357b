"""Files of policies: every field and weight is checked by name, and a file is whole or absent."""

import dataclasses
import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from small_policies import FRAMES, observations, untrained

torch = pytest.importorskip("torch")
safetensors = pytest.importorskip("safetensors")
from safetensors.numpy import load_file, save_file  # noqa: E402

import reverie  # noqa: E402
from reverie import agents  # noqa: E402
from reverie.agents import policy_files  # noqa: E402
from reverie.agents.environments import EnvSpec  # noqa: E402
from reverie.agents.policy_files import KEY, describe  # noqa: E402
from reverie.agents.policy_records import PolicyError, TrainingRun  # noqa: E402
from reverie.runners import CheckpointError  # noqa: E402


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


OPTIONAL = [("environment", "action_dtype"), ("environment", "note")]
"""Fields that files may lack: one that earlier versions did not have, and one that no file has."""


@pytest.mark.parametrize(("section", "name"), [one for one in EVERY if one not in OPTIONAL])
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
