"""docs/guides/use-a-policy.md names the agents whose policies have no critic."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("torch")

from reverie import agents
from reverie.agents.environments import describe

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "guides" / "use-a-policy.md").read_text()


NAMES = {"CQL on SAC": "cql-sac", "Ape-X DPG": "apex-dpg"}


def names_in(text: str) -> set[str]:
    return {NAMES.get(name, name.lower()) for name in re.split(r",\s+|\s+and\s+", text)}


def test_the_page_names_the_agents_whose_policies_have_no_critic() -> None:
    spec, has_critic = describe("Pendulum-v1"), {}
    for name in set(agents.names("continuous")) - {"ppo"}:  # its value network is part of the policy
        agent = agents.find(name)
        policy = agent.make_policy(spec, agent.load_preset("Pendulum-v1").config)
        has_critic[name] = any(part.startswith("critic") for part, _ in policy.module.named_parameters())
    (initial,) = re.findall(r"The critics\s+of (.*?) start from initial weights", PAGE, re.DOTALL)
    assert names_in(initial) == {name for name, has in has_critic.items() if not has}
    (only,) = re.findall(r"only the policy of (.*?) has its critic", PAGE)
    assert names_in(only) == {name for name, has in has_critic.items() if has}
    (none,) = re.findall(r"\n\| (.*?) \| none of them: their critics", PAGE)
    assert names_in(none) == has_critic.keys()
