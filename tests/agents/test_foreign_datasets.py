"""Data sets of other programs in a run: what is refused before it starts, and what a warning names."""

import numpy as np
import pytest

pytest.importorskip("torch", reason='agents need PyTorch: pip install "reverie[torch]"')
pytest.importorskip("pyarrow", reason='Parquet needs pyarrow: pip install "reverie[parquet]"')

import pyarrow as pa
import pyarrow.parquet as pq

import reverie

RUN = {"max_env_steps": 12, "learning_starts": 8, "batch_size": 4, "target_return": None, "evaluate_every": 12}
RUN |= {"screening_episodes": 1, "confirmation_episodes": 1}


@pytest.fixture
def write(tmp_path):
    """A function: writes 12 steps of two episodes of Pendulum's shapes with further columns; returns the path."""

    def write(**columns):
        obs = np.repeat(np.arange(12.0, dtype=np.float32)[:, None], 3, axis=1)
        steps = {"obs": list(obs), "next_obs": list(obs + 1), "action": list(np.zeros((12, 1), np.float32))}
        steps |= {"reward": np.ones(12), "terminated": np.zeros(12, bool), "truncated": np.arange(12) % 6 == 5}
        path = tmp_path / "steps.parquet"
        pq.write_table(pa.table({**steps, **columns}), path)
        return str(path)

    return write


def test_each_step_with_a_next_observation_is_an_item_of_a_run(write):
    result = reverie.train("iql", "Pendulum-v1", dataset=write(), capacity=12, **RUN)
    assert result.replay["inserts"] == 12


def test_shuffled_transitions_are_refused_before_a_run_starts(write):
    backwards = np.repeat(np.arange(12.0, dtype=np.float32)[::-1, None], 3, axis=1)
    with pytest.raises(ValueError, match=r"row 0 \(from 0\): column 'next_obs' is not the obs of row 1"):
        reverie.train("iql", "Pendulum-v1", dataset=write(obs=list(backwards), next_obs=list(backwards + 1)), **RUN)
