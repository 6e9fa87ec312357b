"""Checks on a node whether a role's process is stopped."""

from types import SimpleNamespace

import pytest

pytest.importorskip("torch")
pytest.importorskip("ray")
pytest.importorskip("cryptography")

from reverie.runners.links.messages import RoleName, RoleReady
from reverie.runners.ray import cluster as on_ray
from reverie.runners.ray import stop_probe as probes


@pytest.fixture
def asked(monkeypatch):
    """The questions that were asked, each a list that gets its answer from the test."""
    questions = []

    class Task:
        def options(self, **options):
            assert options["num_cpus"] == 0
            assert options["scheduling_strategy"].node_id == "a" * 56
            return self

        def remote(self, pid):
            questions.append([])
            assert pid == 7
            return questions[-1]

    fake = SimpleNamespace(
        remote=lambda function: Task(),
        wait=lambda refs, timeout: (refs, []) if refs[0] else ([], refs),
        get=lambda ref: ref[0],
    )
    monkeypatch.setattr(probes, "ray", fake)
    monkeypatch.setattr(probes, "AGAIN_SECONDS", 0.0)
    return questions


def test_a_node_is_checked_once_at_a_time_and_its_last_answer_holds_until_the_next(asked):
    probe = probes.StopProbe(RoleReady(7, "a" * 56))
    assert [probe.why_stopped() for _ in range(3)] == [""] * 3
    assert len(asked) == 1
    asked[0].append("10.0.0.9")
    reported = "is stopped (kill -CONT 7 on 10.0.0.9 resumes it)"
    assert [probe.why_stopped() for _ in range(3)] == [reported] * 3
    assert len(asked) == 2
    asked[1].append("")
    assert probe.why_stopped() == ""


def test_a_role_that_answers_is_not_checked_and_earlier_findings_are_discarded(asked, monkeypatch):
    name, now = RoleName("evaluator", alone=True), [100.0]
    monkeypatch.setattr(on_ray, "time", SimpleNamespace(monotonic=lambda: now[0]))
    living = SimpleNamespace(probe=probes.StopProbe(RoleReady(7, "a" * 56)), drained=100.0)
    backend = object.__new__(on_ray.Cluster)
    backend._running = {name: living}
    now[0] = 104.0
    assert (backend.why_stopped(name), asked) == ("", [])
    now[0] = 106.0
    assert backend.why_stopped(name) == ""
    asked[0].append("10.0.0.9")
    assert backend.why_stopped(name).startswith("is stopped")
    living.drained = 106.0
    assert backend.why_stopped(name) == ""
    now[0] = 112.0
    assert backend.why_stopped(name) == ""  # not what was found the last time
    assert backend.why_stopped(RoleName("actor", 3)) == ""
