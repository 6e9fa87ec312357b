"""Data sets of other programs in a run: what is refused before it starts, and what a warning names."""

import dataclasses
import warnings

import numpy as np
import pytest

pytest.importorskip("torch", reason='agents need PyTorch: pip install "reverie[torch]"')
pytest.importorskip("pyarrow", reason='Parquet needs pyarrow: pip install "reverie[parquet]"')

import pyarrow as pa
import pyarrow.parquet as pq

import reverie
from reverie.agents import find
from reverie.agents.presets import PresetError

RUN = {"max_env_steps": 12, "learning_starts": 8, "batch_size": 4, "target_return": None, "evaluate_every": 12}
RUN |= {"screening_episodes": 1, "confirmation_episodes": 1}


@pytest.fixture
def write(tmp_path):
    """A function: writes 12 steps of two episodes of Pendulum's shapes with further columns; returns the path."""

    def write(**columns):
        places = np.arange(12) + 10 * (np.arange(12) // 6)  # an episode begins where no other ends
        obs = np.repeat(places[:, None], 3, axis=1).astype(np.float32)
        steps = {"obs": list(obs), "next_obs": list(obs + 1), "action": list(np.zeros((12, 1), np.float32))}
        steps |= {"reward": np.ones(12), "terminated": np.zeros(12, bool), "truncated": np.arange(12) % 6 == 5}
        path = tmp_path / "steps.parquet"
        steps = {name: column for name, column in {**steps, **columns}.items() if column is not None}
        pq.write_table(pa.table(steps), path)
        return str(path)

    return write


def test_each_step_with_a_next_observation_is_an_item_of_a_run(write):
    result = reverie.train("iql", "Pendulum-v1", dataset=write(), capacity=12, **RUN)
    assert result.replay["inserts"] == 12


def test_shuffled_transitions_are_all_items_of_a_run_which_warns_where_returns_of_several_steps_end_early(write):
    backwards = np.repeat(np.arange(12.0, dtype=np.float32)[::-1, None], 3, axis=1)
    path = write(obs=list(backwards), next_obs=list(backwards + 1))
    result = reverie.train("iql", "Pendulum-v1", dataset=path, capacity=12, **RUN)
    assert result.replay["inserts"] == 12
    with pytest.warns(reverie.TrainingWarning, match=r"after 10 of the first 1,000 rows .* fewer steps than n_step=3$"):
        reverie.train("iql", "Pendulum-v1", dataset=path, n_step=3, normalise_rewards=False, **RUN)
    with pytest.warns(reverie.TrainingWarning, match=r"after 10 .* and normalise_rewards divides by the deviation"):
        reverie.train("iql", "Pendulum-v1", dataset=path, normalise_rewards=True, **RUN)


CONFIG = find("iql").load_preset("Pendulum-v1").config


def warnings_of(path):
    """The texts of the warnings of a run about its data set."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        reverie.train("iql", "Pendulum-v1", dataset=path, **RUN)
    return [str(one.message) for one in caught if one.category is reverie.TrainingWarning and path in str(one.message)]


def test_one_warning_names_the_columns_that_are_not_read_and_the_number_of_episodes(write):
    (text,) = warnings_of(write(weather=np.ones(12), is_last=np.zeros(12, bool)))
    assert "the columns is_last, weather are not read" in text
    assert "its 12 rows are 2 episodes" in text


def test_a_warning_names_the_number_of_episodes_where_no_row_ends_one(write):
    (text,) = warnings_of(write(truncated=np.zeros(12, bool), next_obs=None))
    assert "its 12 rows are 1 episode, " in text
    assert "are not read" not in text


def test_a_data_set_whose_columns_are_all_read_and_whose_episodes_end_has_no_warning(write):
    assert warnings_of(write()) == []
    assert warnings_of(write(truncated=np.zeros(12, bool), episode=np.arange(12) // 6)) == []


def test_a_dict_and_a_list_of_new_names_are_the_same_setting(write):
    path = write(observations=np.ones(12))
    settings = [
        dataclasses.replace(CONFIG, dataset=path, dataset_rename=rename)
        for rename in ({"done": "terminated", "timeouts": "truncated"}, ["done=terminated", "timeouts=truncated"])
    ]
    assert settings[0] == settings[1]
    assert settings[0].dataset_rename == ("done=terminated", "timeouts=truncated")


@pytest.mark.parametrize("names", ["timeouts=truncated", ["timeouts"], {"timeouts": 1}, ["=truncated"]])
def test_new_names_in_another_form_are_refused_with_an_example(names):
    with pytest.raises((TypeError, ValueError), match=r'such as \["observations=obs", "done=terminated"\]'):
        dataclasses.replace(CONFIG, dataset="steps.parquet", dataset_rename=names)
    with pytest.raises(PresetError, match=r'such as \["observations=obs", "done=terminated"\]'):
        reverie.train("iql", "Pendulum-v1", dataset="steps.parquet", dataset_rename=names)


def test_a_missing_data_set_is_refused_with_the_setting_that_names_it(tmp_path):
    with pytest.raises(FileNotFoundError, match="the setting dataset names no file or folder") as raised:
        reverie.train("iql", "Pendulum-v1", dataset=str(tmp_path / "none.parquet"), **RUN)
    assert raised.value.filename == str(tmp_path / "none.parquet")
