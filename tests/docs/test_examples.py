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


@pytest.mark.parametrize(("name", "lines"), [("apex_by_hand", 150), ("apex_on_ray_by_hand", 150), ("cleanrl_dqn", 100)])
def test_programs_by_hand_have_as_many_lines_as_their_pages_promise(name, lines):
    assert len((EXAMPLES / f"{name}.py").read_text().splitlines()) <= lines
