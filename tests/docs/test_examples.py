"""The programs of a new user stay short; `make examples` runs them."""

from __future__ import annotations

from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
PROGRAMS = [
    "dqn_with_priorities",
    "recurrent_sequences",
    "ppo_from_four_processes",
    "groups_of_completions",
    "sb3_dqn_and_sac",
]


@pytest.mark.parametrize("name", PROGRAMS)
def test_each_program_of_a_new_user_is_under_60_lines(name):
    assert len((EXAMPLES / f"{name}.py").read_text().splitlines()) < 60
