"""`train` as a library call: names, settings by keyword, the run's folder, problems, and the result."""

import dataclasses
import inspect
import logging
import pickle
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import current_process, get_context
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

import reverie
from reverie import agents, runners
from reverie.agents import presets
from reverie.agents.core import RunSettings
from reverie.agents.env_settings import EnvSettings
from reverie.runners import CheckpointError, NotSaved, Progress, Saved, Started, StoppedError, checkpoints, train
from reverie.runners.checkpoints import RunExistsError, run_files
from reverie.runners.reports import logs, scalar_logs
from reverie.runners.reports.problems import EventReporter

TINY = {
    "hidden": [8],
    "batch_size": 8,
    "learning_starts": 50,
    "evaluate_every": 100,
    "screening_episodes": 1,
    "confirmation_episodes": 1,
}
SHORT = {**TINY, "max_env_steps": 150}
DQN = agents.find("dqn")


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_an_agent_is_given_by_name_and_settings_by_keyword_as_objects_of_python():
    result = reverie.train(
        "dqn", "CartPole-v1", **SHORT, learning_rate=1, discount=np.float32(0.5), target_return=None, time_limit=30
    )
    topology = result.topology
    assert topology.agent == "dqn"
    assert (topology.config.learning_rate, topology.config.discount, topology.config.hidden) == (1.0, 0.5, (8,))
    assert type(topology.config.learning_rate) is float
    assert (topology.run.max_env_steps, topology.run.target_return) == (150, None)
    assert topology.env.settings.time_limit == 30


def test_keywords_change_single_settings_of_the_objects_that_are_given():
    preset = DQN.load_preset("CartPole-v1")
    config = dataclasses.replace(preset.config, learning_rate=0.5, batch_size=16)
    started = []
    with pytest.raises(StoppedError):
        train(DQN, "CartPole-v1", config=config, batch_size=4, on_event=started.append, should_stop=lambda: True)
    topology = started[0].topology
    assert (topology.config.learning_rate, topology.config.batch_size) == (0.5, 4)
    assert topology.run == preset.run


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"lerning_rate": 1e-3}, "has no setting 'lerning_rate'; did you mean learning_rate?"),
        ({"lr": 1e-3}, "has no setting 'lr'; did you mean learning_rate?"),
        ({"total_timesteps": 100}, "has no setting 'total_timesteps'; did you mean max_env_steps?"),
        ({"on_events": print}, "has no setting 'on_events'; did you mean on_event?"),
        ({"batch_size": "many"}, r"\[agent\] batch_size is 'many', and must be an int"),
        ({"hidden": 64}, r"\[agent\] hidden is 64, and must be a list of integers"),
        ({"batch_size": None}, r"\[agent\] batch_size is None, and must be an int"),
        ({"discount": 2.0}, "with discount=2.0: discount is 2.0"),
    ],
)
def test_settings_that_do_not_exist_or_do_not_fit_are_refused(settings, words):
    with pytest.raises(presets.PresetError, match=words):
        train("dqn", "CartPole-v1", **settings)


def test_an_error_of_a_keyword_begins_with_the_agent_and_not_with_a_file():
    for settings, words in (
        ({"lerning_rate": 1}, "^dqn has no setting 'lerning_rate'; did you mean learning_rate"),
        ({"batch_size": "many"}, r"^settings of dqn: \[agent\] batch_size is 'many'"),
        ({"discount": 2.0}, "^settings of dqn: with discount=2.0: discount is 2.0"),
    ):
        with pytest.raises(presets.PresetError, match=words):
            train("dqn", "CartPole-v1", **settings)


def test_a_process_that_imports_the_program_trains_nothing(monkeypatch):
    monkeypatch.setattr(current_process(), "_inheriting", True, raising=False)
    with pytest.raises(RuntimeError, match=r'imports the program, .*: call it under `if __name__ == "__main__":`'):
        train("dqn", "CartPole-v1", **SHORT)


def test_no_setting_of_an_agent_has_the_name_of_an_argument():
    own = set(inspect.signature(train).parameters)
    configs = [agents.find(name).config for name in agents.BUILT_IN]
    named = {field.name for one in (RunSettings, EnvSettings, *configs) for field in dataclasses.fields(one)}
    assert not own & named


def test_a_run_has_the_files_of_the_command(tmp_path):
    result = train("dqn", "CartPole-v1", **SHORT, folder=tmp_path / "run")
    names = ["best.safetensors", "checkpoints", "log.jsonl", "preset.toml"]
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == names
    log = logs.read(tmp_path / "run")
    assert (log.agent, log.env_id, log.returns) == ("dqn", "CartPole-v1", tuple(p.mean_return for p in result.curve))
    assert log.finished["env_steps"] == result.env_steps
    written = DQN.load_preset("CartPole-v1", tmp_path / "run" / "preset.toml")
    assert (written.config, written.run) == (result.topology.config, result.topology.run)


def test_a_resumed_run_keeps_its_settings_and_keywords_change_single_ones(tmp_path):
    train("dqn", "CartPole-v1", **SHORT, learning_rate=0.5, time_limit=40, folder=tmp_path)
    again = train("dqn", "CartPole-v1", max_env_steps=250, folder=tmp_path, resume=True)
    settings = again.topology
    assert (settings.config.learning_rate, settings.config.hidden) == (0.5, (8,))
    assert (settings.run.max_env_steps, settings.run.screening_episodes) == (250, 1)
    assert settings.env.settings.time_limit == 40
    assert again.env_steps >= 250
    assert len(logs.read(tmp_path).env_steps) == len(again.curve)
    elsewhere = train("dqn", "CartPole-v1", max_env_steps=300, learning_rate=0.1, resume=tmp_path)
    assert elsewhere.topology.config == dataclasses.replace(settings.config, learning_rate=0.1)


def test_a_run_that_has_no_checkpoint_yet_is_not_replaced_and_begins_again_with_its_settings(tmp_path):
    def fail(event):
        if isinstance(event, Progress) and event.env_steps:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        train("dqn", "CartPole-v1", **SHORT, learning_rate=0.5, folder=tmp_path, on_event=fail)
    assert not checkpoints.any_in(tmp_path)
    before = contents(tmp_path)
    with pytest.raises(RunExistsError, match="holds a run: continue it with resume=True"):
        train("dqn", "CartPole-v1", folder=tmp_path)
    with pytest.raises(RunExistsError, match="seed 0, and this one is of dqn on CartPole-v1 with seed 1"):
        train("dqn", "CartPole-v1", seed=1, folder=tmp_path, resume=True)
    assert contents(tmp_path) == before
    assert train("dqn", "CartPole-v1", folder=tmp_path, resume=True).topology.config.learning_rate == 0.5


def test_a_folder_that_is_no_run_is_not_replaced(tmp_path):
    (tmp_path / "log.jsonl").write_text("mine")
    with pytest.raises(ValueError, match="is not the folder of a run"):
        train("dqn", "CartPole-v1", **SHORT, folder=tmp_path, overwrite=True)
    with pytest.raises(RunExistsError):
        train("dqn", "CartPole-v1", **SHORT, folder=tmp_path)
    assert (tmp_path / "log.jsonl").read_text() == "mine"


def test_a_folder_that_cannot_be_written_is_refused_before_anything_starts(tmp_path, monkeypatch):
    file = tmp_path / "file"
    file.write_text("mine")
    events = []
    with pytest.raises(NotADirectoryError, match=f"^folder is {file}, which is a file: name a folder for the run$"):
        train("dqn", "CartPole-v1", **SHORT, folder=file, on_event=events.append)
    with pytest.raises(NotADirectoryError, match="the run's folder cannot be written: not a directory"):
        train("dqn", "CartPole-v1", **SHORT, folder=file / "run", on_event=events.append)

    def refuse(dir):
        assert dir == tmp_path / "run"
        raise PermissionError(13, "Permission denied", str(dir))

    monkeypatch.setattr(run_files.tempfile, "TemporaryFile", refuse)
    with pytest.raises(PermissionError, match="the run's folder cannot be written: permission denied"):
        train("dqn", "CartPole-v1", **SHORT, folder=tmp_path / "run", on_event=events.append)
    assert events == []
    assert not (tmp_path / "run").exists()


def test_a_problem_that_does_not_end_the_run_is_a_warning(tmp_path, full_disk, caplog):
    events = []
    with caplog.at_level(logging.WARNING, "reverie"):
        train("dqn", "CartPole-v1", **SHORT, epsilon_steps=100, folder=tmp_path, on_event=events.append)
    before, after = [event for event in events if isinstance(event, NotSaved)]  # the last evaluation
    assert before.env_steps == after.env_steps
    place = f"no checkpoint at {after.env_steps:,} steps: No space left on device ({tmp_path / 'checkpoints'})"
    assert [record.getMessage() for record in caplog.records] == [
        f"{place}; the run continues",
        f"{place}; the run ends without it, and older ones are unchanged",
    ]


def test_the_note_about_the_settings_of_another_environment_is_logged(caplog):
    with caplog.at_level(logging.WARNING, "reverie"):
        train("dqn", "FrozenLake-v1", **{**SHORT, "target_return": None})
    assert caplog.messages[0] == agents.find("dqn").load_preset("FrozenLake-v1").note
    assert "FrozenLake-v1 takes " in caplog.messages[0]


def test_a_callback_that_shows_problems_is_the_only_one_to_do_so(tmp_path, full_disk, caplog):
    class Shows:
        shows_problems = True

        def __call__(self, event):
            pass

    with caplog.at_level(logging.WARNING, "reverie"):
        train("dqn", "CartPole-v1", **SHORT, folder=tmp_path, on_event=[Shows()])
    assert caplog.records == []


def test_a_log_that_no_longer_writes_is_reported_once(caplog):
    class Log:
        name, problem = "my log", ""

        def __call__(self, event):
            self.problem = "No space left on device"

    events = []
    report = EventReporter([Log(), events.append])
    with caplog.at_level(logging.WARNING, "reverie"):
        for steps in (1, 2):
            report(Saved(steps, Path("a")))
    lost = runners.LogNotWritten(1, "my log", "No space left on device")
    assert events == [lost, Saved(1, Path("a")), Saved(2, Path("a"))]
    (record,) = caplog.records
    assert record.getMessage() == "my log cannot be written: No space left on device; the run does not depend on it"


def test_several_callbacks_and_logs_with_paths_as_text_get_every_event(tmp_path):
    pytest.importorskip("tensorboard")
    board = scalar_logs.TensorBoard(str(tmp_path / "board"))
    lines = logs.JsonLines(str(tmp_path / "lines.jsonl"))
    events = []
    result = train("dqn", "CartPole-v1", **SHORT, on_event=(board, lines, events.append))
    board.close()
    lines.close()
    assert board.problem == lines.problem == ""
    (file,) = (tmp_path / "board").iterdir()
    assert b"return/greedy" in file.read_bytes()
    assert logs.read(tmp_path / "lines.jsonl").finished["env_steps"] == result.env_steps
    assert isinstance(events[0], Started)


def trained_with(seed):
    return train("dqn", "CartPole-v1", **SHORT, seed=seed)


@pytest.mark.long
def test_results_come_from_a_pool_of_processes():
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        results = list(pool.map(trained_with, range(2)))
    assert [result.topology.seed for result in results] == [0, 1]
    assert results[0].policy(np.zeros(4, np.float32)).shape == ()


def test_a_result_is_pickled_and_its_policy_is_that_of_its_last_weights(tmp_path):
    result = train("dqn", "CartPole-v1", **SHORT, folder=tmp_path)
    observations = np.random.default_rng(0).normal(size=(64, 4)).astype(np.float32)
    loaded = reverie.load_policy(tmp_path)
    saved = reverie.load_policy(result.policy.save(tmp_path / "policy.safetensors"))
    copy = pickle.loads(pickle.dumps(result))
    for policy in (loaded, saved, copy.policy):
        assert (policy(observations) == result.policy(observations)).all()
        assert policy.run == result.policy.run
    assert result.policy is result.policy
    assert copy.topology == result.topology
    with pytest.raises(TypeError, match="does not support item assignment"):
        copy.topology.memory["networks"] = 0
    assert copy.agent is not None
    again = train("dqn", "CartPole-v1", folder=tmp_path, resume=True)
    assert (again.policy(observations) == result.policy(observations)).all()


AGENT = """
import dataclasses
from reverie.agents.dqn import agent as dqn

agent = dataclasses.replace(dqn, name="mine")
"""


def test_a_policy_of_an_agent_of_another_module_is_saved_with_its_reference(tmp_path, monkeypatch):
    (tmp_path / "module_of_mine.py").write_text(AGENT)
    monkeypatch.syspath_prepend(tmp_path)
    result = train("module_of_mine:agent", "CartPole-v1", **SHORT, folder=tmp_path / "run")
    again = train("module_of_mine:agent", "CartPole-v1", folder=tmp_path / "run", resume=True)
    for one in (result, again, pickle.loads(pickle.dumps(result))):
        assert one.policy.reference == "module_of_mine:agent"
    path = result.policy.save(tmp_path / "policy.safetensors")
    assert reverie.load_policy(path, agent="module_of_mine:agent").run == result.policy.run
    with pytest.raises(ValueError, match="name it, as agent='module_of_mine:agent'"):
        reverie.load_policy(path)


def test_a_damaged_log_of_a_finished_run_is_reported_and_the_result_returned(tmp_path, caplog):
    result = train("dqn", "CartPole-v1", **SHORT, epsilon_steps=100, folder=tmp_path)
    log = tmp_path / "log.jsonl"
    log.write_text("damaged\n" + log.read_text())
    before, events = log.read_bytes(), []
    with caplog.at_level(logging.WARNING, "reverie"):
        again = train("dqn", "CartPole-v1", folder=tmp_path, resume=True, on_event=events.append)
    assert again.evaluation == result.evaluation
    (lost,) = events
    assert (lost.name, lost.env_steps) == (str(log), result.env_steps)
    assert "is not JSON in line 1" in lost.reason
    assert len(caplog.records) == 1
    assert log.read_bytes() == before


def test_a_run_of_another_agent_is_refused_before_its_settings_are_read(tmp_path):
    with pytest.raises(ZeroDivisionError):
        train("dqn", "CartPole-v1", **SHORT, folder=tmp_path, on_event=after_start)
    with pytest.raises(RunExistsError, match="holds a run of dqn on CartPole-v1"):
        train("ppo", "CartPole-v1", folder=tmp_path, resume=True)


def after_start(event):
    if not isinstance(event, Started):
        raise ZeroDivisionError


def test_a_preset_that_is_given_is_not_read_again(tmp_path):
    preset = dataclasses.replace(DQN.load_preset("CartPole-v1"), path=tmp_path / "gone.toml")
    assert train("dqn", "CartPole-v1", preset=preset, **SHORT).topology.preset == tmp_path / "gone.toml"
    with pytest.raises(TypeError, match="preset has settings of the type DqnConfig, and ppo takes a PpoConfig"):
        train("ppo", "CartPole-v1", preset=preset)


def test_the_name_at_the_top_names_the_extra_that_is_missing(monkeypatch):
    from reverie import training

    monkeypatch.setattr(training, "find_spec", lambda name: None if name == "torch" else object())
    with pytest.raises(ImportError, match=r'reverie.train needs torch: pip install "reverie\[agents\]"'):
        reverie.train("dqn", "CartPole-v1")


def test_an_agent_that_does_not_exist_and_a_missing_run_are_refused(tmp_path):
    with pytest.raises(agents.UnknownAgentError, match="did you mean"):
        train("dqm", "CartPole-v1")
    with pytest.raises(CheckpointError, match='resume is "must"'):
        train("dqn", "CartPole-v1", folder=tmp_path / "none", resume="must")
