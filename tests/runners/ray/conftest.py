"""The processes and nodes of a run's roles on Ray."""

import pytest


@pytest.fixture
def places(monkeypatch):
    """The process and the node of each role that is ready.

    A role that follows a shard starts again without an event: until it is ready again it has no place.
    """
    messages = pytest.importorskip("reverie.runners.links.messages")
    on_ray = pytest.importorskip("reverie.runners.ray.cluster")
    seen = {}
    listen, start = on_ray.Cluster.listen, on_ray.Cluster.start

    def starting(backend, setup):
        seen.pop(str(setup.name), None)
        start(backend, setup)

    monkeypatch.setattr(on_ray.Cluster, "start", starting)

    def listening(backend, timeout):
        reported = listen(backend, timeout)
        seen.update({str(name): report for name, report in reported if isinstance(report, messages.RoleReady)})
        return reported

    monkeypatch.setattr(on_ray.Cluster, "listen", listening)
    return seen
