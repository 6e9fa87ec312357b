"""The page of a run whose roles are processes."""

import contextlib
import json
import urllib.request

import pytest

pytest.importorskip("torch")

from process_runs import ENDLESS, WATCHDOG, kill, of_kind, small, train

from reverie.runners import (
    PageOpened,
    Progress,
    RoleRestarted,
    StoppedError,
)

# In one worker: the fork server, which imports PyTorch, is one for all of them.
pytestmark = pytest.mark.xdist_group("processes")


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "role", "config"),
    [("apex-dqn", "shard 0", {}), ("gorila", "bundle 0", {"bundled": True, "num_actors": 2, "num_learners": 2})],
)
def test_the_page_of_a_run_survives_the_role_that_serves_it(name, role, config):
    def on_event(event):
        events.append(event)
        if not isinstance(event, Progress) or not of_kind(events, PageOpened):
            return
        with contextlib.suppress(OSError):  # nothing listens there during a restart
            shown = json.loads(read(of_kind(events, PageOpened)[-1].url + "api/run"))
            if shown is None or shown["updates"] == 0:
                return
            if not pages:
                pages.append((shown, read(of_kind(events, PageOpened)[-1].url + "metrics")))
                kill(role)
            elif len(pages) == 1 and of_kind(events, RoleRestarted) and shown["updates"] > pages[0][0]["updates"]:
                pages.append(shown)

    events, pages = [], []
    with pytest.raises(StoppedError):
        train(
            name,
            config=small(name, **config),
            run=ENDLESS,
            http=0,
            on_event=on_event,
            should_stop=lambda: len(pages) > 1,
        )
    assert [event.role for event in of_kind(events, RoleRestarted)] == [role]
    # It asks for its old port, which is free again unless another program has taken it.
    assert all(event.url.startswith("http://127.0.0.1:") for event in of_kind(events, PageOpened))
    (before, metrics), after = pages
    assert (before["agent"], before["runner"]) == (name, "process")
    assert before["env_steps"] <= after["env_steps"]
    assert before["policy_age_updates"] is not None
    assert "reverie_updates_total" in metrics
    assert "reverie_table_items" in metrics


@pytest.mark.long
def test_the_page_of_a_run_with_several_shards_shows_the_chance_and_the_health_of_each():
    def on_event(event):
        if isinstance(event, PageOpened):
            urls.append(event.url)
        if isinstance(event, Progress) and event.updates and urls:
            run = json.loads(read(urls[0] + "api/run"))
            # The client that reports the chances may have seen the tables before their first items.
            if run and run["shards"] and all(one["items"] and one["chances"]["replay"] for one in run["shards"]):
                shown.append(run)

    urls, shown = [], []
    with pytest.raises(StoppedError):
        train(
            "apex-dqn", config=small(), run=ENDLESS, num_shards=2, http=0, on_event=on_event, should_stop=lambda: shown
        )
    shards = shown[0]["shards"]
    assert [shard["present"] for shard in shards] == [True, True]
    assert len({shard["address"] for shard in shards}) == 2
    assert sum(shard["chances"]["replay"] for shard in shards) == pytest.approx(1.0)
    assert {(shard["problem"], shard["restarts"]) for shard in shards} == {(None, 0)}


def read(url):
    with urllib.request.urlopen(url, timeout=WATCHDOG) as response:
        return response.read().decode()
