import contextlib
import functools

import numpy as np
import pytest

import reverie
from reverie import Table, rate_limiters, selectors
from reverie.writers.last_rows import last_rows


def fifo(name="t", **options):
    return Table(
        name, selectors.Fifo(), selectors.Fifo(), 10_000, rate_limiters.MinSize(1), max_times_sampled=1, **options
    )


def everything(client, writer):
    writer.flush(timeout=200)
    size = client.info().tables["t"].current_size
    return client.sample_batch("t", size, timeout=0)


class Episodes:
    """Random episodes of vector environments, and the items they must give, by the definition."""

    def __init__(self, num_envs, num_steps, seed):
        self.rng = np.random.default_rng(seed)
        self.num_envs = num_envs
        self.steps = [self._run(env, num_steps) for env in range(num_envs)]

    def _run(self, env, num_steps):
        """A row for each call of append: (observation, reward, terminated, truncated); None rewards mark resets."""
        calls, number, ended = [], 0, False
        for _ in range(num_steps):
            observation = env * 1000 + number
            number += 1
            if ended:
                calls.append((observation, None, False, False))
                ended = False
                continue
            kind = self.rng.random()
            terminated, truncated = kind < 0.1, 0.1 <= kind < 0.2
            calls.append((observation, float(self.rng.integers(-3, 4)), terminated, truncated))
            ended = terminated or truncated
        return calls

    def items(self, n, gamma):
        """Every (obs, reward, discount, next_obs), in any order."""
        wanted = []
        for calls in self.steps:
            for start, (observation, reward, _, _) in enumerate(calls):
                if reward is None:
                    continue
                total, discount = 0.0, 1.0
                for end in range(start, min(start + n, len(calls))):
                    _, earned, terminated, truncated = calls[end]
                    total += discount * earned
                    discount *= 0.0 if terminated else gamma
                    if (end == start + n - 1 or terminated or truncated) and end + 1 < len(calls):
                        wanted.append((observation, total, discount, calls[end + 1][0]))
                        break
                    if terminated or truncated:
                        break
        return sorted(wanted)


@pytest.mark.one_table_only("its table deletes sampled items: shards refuse it")
@pytest.mark.parametrize("n", [1, 2, 3, 7])
@pytest.mark.parametrize("num_envs", [1, 4])
def test_items_are_the_definition_of_n_step_returns(connect, n, num_envs):
    client = connect(fifo())
    episodes = Episodes(num_envs, 120, seed=n * 10 + num_envs)
    writer = client.transition_writer("t", n_step=n, discount=0.9, num_envs=num_envs)
    sent = 0
    for calls in zip(*episodes.steps, strict=True):
        obs = np.array([[call[0]] for call in calls], np.float32)
        sent += writer.append(
            {"x": obs},
            np.array([call[0] for call in calls]),
            np.array([call[1] or 0.0 for call in calls]),
            np.array([call[2] for call in calls]),
            np.array([call[3] for call in calls]),
        )
    batch = everything(client, writer)
    data = batch.data
    assert len(batch) == sent
    assert list(data) == ["action", "discount", "next_obs", "obs", "reward"]
    np.testing.assert_array_equal(data["obs"]["x"][:, 0], data["action"])
    got = sorted(
        zip(
            data["obs"]["x"][:, 0].tolist(),
            data["reward"].tolist(),
            data["discount"].tolist(),
            data["next_obs"]["x"][:, 0].tolist(),
            strict=True,
        )
    )
    np.testing.assert_allclose(got, episodes.items(n, 0.9), rtol=1e-6)
    assert data["reward"].dtype == data["discount"].dtype == np.float32


@pytest.mark.one_table_only("its table deletes sampled items: shards refuse it")
def test_the_program_resets_one_environment_and_gives_the_observation_after_the_end(connect):
    client = connect(fifo())
    writer = client.transition_writer("t", discount=0.5)
    with pytest.raises(ValueError, match="an episode ended: final_obs must give the observation after the last action"):
        writer.append(np.float32(0), 0, 1.0, False, True)
    writer.append(np.float32(0), 0, 1.0, False, False, final_obs=np.float32(1))
    writer.append(np.float32(1), 0, 2.0, False, True, final_obs=np.float32(2))
    writer.append(np.float32(100), 0, 3.0, True, False, final_obs=np.float32(101))
    data = everything(client, writer).data
    assert data["obs"].tolist() == [0, 1, 100]
    assert data["next_obs"].tolist() == [1, 2, 101]
    assert data["discount"].tolist() == [0.5, 0.5, 0]


@pytest.mark.one_table_only("its table deletes sampled items: shards refuse it")
@pytest.mark.parametrize("nest", [lambda x: x, lambda x: {"a": x, "b": -x}, lambda x: (x, {"c": 2 * x})])
def test_final_observations_may_be_an_array_of_objects_as_gymnasium_gives_them(connect, nest):
    client = connect(fifo())
    writer = client.transition_writer("t", num_envs=3, autoreset="same_step", discount=0.5)
    obs, final = np.arange(6, dtype=np.float32).reshape(3, 2), np.full(3, None)
    append = functools.partial(writer.append, nest(obs), np.zeros(3), np.ones(3), np.zeros(3, bool))
    append(np.zeros(3, bool))
    final[1] = nest(np.float32([7, 8]))
    ended = np.array([False, True, False])
    append(ended, final_obs=final)
    writer.end_episodes()
    found = everything(client, writer).data["next_obs"]
    flat = reverie._native.flatten(nest(np.float32([7, 8])))[0]
    for column, want in zip(reverie._native.flatten(found)[0], flat, strict=True):
        assert sum(np.array_equal(row, want) for row in column) == 1
    for wrong, text in (
        (np.full(3, None), r"final_obs\[1\] is None, and the episode of environment 1 ended"),
        (np.full(2, None), r"final_obs has the shape \[2\], and there are 3 environments"),
        (np.array([None, {"other": 1}, None]), r"final_obs\[1\]: got the parts other, want "),
        (np.array([None, nest(np.zeros(3, np.float32)), None], object), r"final_obs\[1\].*: got the shape \[3\], want"),
    ):
        with pytest.raises(ValueError, match=text):
            append(ended, final_obs=wrong)


@pytest.mark.parametrize("wrong", [np.array([0.5, 1]), np.array([300, 1]), np.array([-1, 1])])
def test_final_observations_that_the_dtype_of_obs_does_not_have_are_refused(wrong):
    obs, found = np.ones((2, 2), np.uint8), np.full(2, None)
    found[1] = np.array([9, 8])  # a Discrete space has int64
    assert last_rows(obs, found, [False, True], [False, False]).tolist() == [[1, 1], [9, 8]]
    found[1] = wrong
    with pytest.raises(reverie.SignatureError, match=rf"final_obs\[1\]: got {wrong.dtype}, want uint8 as in obs"):
        last_rows(obs, found, [False, False], [False, True])


@pytest.mark.one_table_only("its table deletes sampled items: shards refuse it")
def test_same_step_autoreset_takes_the_last_observation_from_final_obs(connect):
    client = connect(fifo())
    writer = client.transition_writer("t", num_envs=2, autoreset="same_step", discount=0.5)
    no, yes = np.zeros(2, bool), np.array([False, True])
    writer.append(np.array([1, 10]), np.zeros(2), np.ones(2), no, no)
    with pytest.raises(ValueError, match="final_obs"):
        writer.append(np.array([2, 11]), np.zeros(2), np.ones(2), yes, no)
    writer.append(np.array([2, 11]), np.zeros(2), np.ones(2), no, yes, final_obs=np.array([0, 12]))
    writer.append(np.array([3, 50]), np.zeros(2), np.ones(2), no, no)
    data = everything(client, writer).data
    got = sorted(zip(data["obs"].tolist(), data["next_obs"].tolist(), data["discount"].tolist(), strict=True))
    assert got == [(1, 2, 0.5), (2, 3, 0.5), (10, 11, 0.5), (11, 12, 0.5)]


@pytest.mark.one_table_only("its table deletes sampled items: shards refuse it")
def test_one_environment_needs_no_axis_and_no_arrays(connect):
    client = connect(fifo())
    writer = client.transition_writer("t", n_step=2, discount=0.5)
    for step in range(3):
        obs, after = ({"a": np.float32(number), "b": [np.zeros(3)]} for number in (step, step + 1))
        writer.append(obs, step, 1.0, step == 2, False, final_obs=after, extras={"version": step})
    data = everything(client, writer).data
    assert data["obs"]["a"].tolist() == [0.0, 1.0, 2.0]
    assert data["next_obs"]["a"].tolist() == [2.0, 3.0, 3.0]
    assert data["reward"].tolist() == [1.5, 1.5, 1.0]
    assert data["discount"].tolist() == [0.25, 0.0, 0.0]
    assert data["version"].tolist() == [0, 1, 2]
    assert data["obs"]["b"][0].shape == (3, 3)


@pytest.mark.emulated
@pytest.mark.one_table_only("its table deletes sampled items: shards refuse it")
def test_frames_are_stacked_when_they_are_read_and_stored_once(connect):
    client = connect(fifo(compression="none"))
    writer = client.transition_writer("t", frame_stack=4, discount=1.0, num_envs=1)
    frames = np.random.default_rng(0).integers(0, 255, (60, 1, 84, 84), dtype=np.uint8)
    no = np.zeros(1, bool)
    for frame in frames:
        writer.append(frame, np.zeros(1), np.zeros(1), no, no)
    writer.flush(timeout=200)
    stored = client.info().tables["t"].size_bytes
    assert stored < 64 * (84 * 84 + 200)
    data = everything(client, writer).data
    assert data["obs"].shape == data["next_obs"].shape == (59, 4, 84, 84)
    for index in (0, 1, 2, 10, 58):
        want = [frames[max(0, index - back), 0] for back in (3, 2, 1, 0)]
        np.testing.assert_array_equal(data["obs"][index], want)
    np.testing.assert_array_equal(data["next_obs"][:-1], data["obs"][1:])


@pytest.mark.one_table_only("its table deletes sampled items: shards refuse it")
def test_a_stack_may_be_the_last_axis(connect):
    client = connect(fifo())
    writer = client.transition_writer("t", frame_stack=2, stack_axis=2, num_envs=1)
    for frame in np.arange(4 * 6).reshape(4, 1, 2, 3):
        writer.append(frame, np.zeros(1), np.zeros(1), [False], [False])
    data = everything(client, writer).data
    assert data["obs"].shape == (3, 2, 3, 2)
    np.testing.assert_array_equal(data["obs"][2, ..., 1], np.arange(12, 18).reshape(2, 3))


@pytest.mark.one_table_only("its table deletes sampled items: shards refuse it")
def test_priorities_are_the_td_error_from_values_that_the_actor_has(connect):
    client = connect(fifo())
    writer = client.transition_writer("t", n_step=2, discount=0.5, num_envs=1, priority_eps=0.25)
    q, v = [1.0, 2.0, 3.0, 4.0, 5.0], [10.0, 20.0, 30.0, 40.0, 50.0]
    for step in range(5):
        writer.append(
            np.array([step]),
            np.array([0]),
            [1.0],
            [step == 3],
            [False],
            q_taken=q[step : step + 1],
            bootstrap_value=v[step : step + 1],
        )
    batch = everything(client, writer)
    # Two from 0 and 1 with both steps, then the tails 2 and 3 that terminate.
    want = [abs(1.5 + 0.25 * 30 - 1), abs(1.5 + 0.25 * 40 - 2), abs(1.5 - 3), abs(1.0 - 4)]
    np.testing.assert_allclose(batch.info.priority, np.array(want) + 0.25)
    # The same with errors that count for 5 at most: before what is added.
    clipped = connect(fifo())
    again = clipped.transition_writer("t", n_step=2, discount=0.5, num_envs=1, priority_eps=0.25, priority_clip=5.0)
    for step in range(5):
        values = {"q_taken": q[step : step + 1], "bootstrap_value": v[step : step + 1]}
        again.append(np.array([step]), np.array([0]), [1.0], [step == 3], [False], **values)
    priorities = everything(clipped, again).info.priority
    np.testing.assert_allclose(priorities, np.minimum(want, 5.0) + 0.25)
    assert max(want) > 5.0 > min(want)
    # In another unit: both numbers are times it, also for the items that end an episode.
    scaled = connect(fifo())
    other = scaled.transition_writer("t", n_step=2, discount=0.5, num_envs=1, priority_eps=0.125, priority_clip=2.5)
    for step in range(5):
        values = {"q_taken": q[step : step + 1], "bootstrap_value": v[step : step + 1], "priority_unit": 2.0}
        other.append(np.array([step]), np.array([0]), [1.0], [step == 3], [False], **values)
    np.testing.assert_allclose(everything(scaled, other).info.priority, priorities)
    for unit in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="priority_unit must be finite and above 0"):
            other.append(np.array([9]), np.array([0]), [1.0], [False], [False], priority_unit=unit)
    with pytest.raises(ValueError, match="q_taken"):
        writer.append(np.array([9]), np.array([0]), [1.0], [False], [False], q_taken=[np.nan], bootstrap_value=[0.0])


@pytest.mark.one_table_only("its table deletes sampled items: shards refuse it")
def test_closing_emits_items_with_a_valid_end(connect):
    client = connect(fifo())
    with client.transition_writer("t", n_step=3, discount=1.0, num_envs=1) as writer:
        for step in range(4):
            assert writer.append(np.array([step]), np.array([0]), [1.0], [False], [False]) == (1 if step == 3 else 0)
    data = everything(client, writer).data
    assert data["obs"].tolist() == [0, 1, 2]
    assert data["next_obs"].tolist() == [3, 3, 3]
    assert data["reward"].tolist() == [3.0, 2.0, 1.0]
    assert writer.num_dropped == 1


@pytest.mark.one_table_only("its table deletes sampled items: shards refuse it")
def test_rows_and_forms_that_do_not_fit_are_refused_by_name(connect):
    client = connect(fifo())
    writer = client.transition_writer("t", num_envs=2)
    two = np.zeros(2)
    no = np.zeros(2, bool)
    with pytest.raises(reverie.SignatureError, match=r"'obs/x'.*3 rows") as raised:
        writer.append({"x": np.zeros(3)}, two, two, no, no)
    assert raised.value.path == "obs/x"
    writer.append({"x": two}, two, two, no, no)
    with pytest.raises(reverie.SignatureError, match=r"float32.*float64") as raised:
        writer.append({"x": np.zeros(2, np.float32)}, two, two, no, no)
    assert raised.value.path == "obs/x"
    with pytest.raises(reverie.SignatureError, match="reward"):
        writer.append({"x": two}, two, np.zeros(3), no, no)
    with pytest.raises(reverie.SignatureError, match="terminated"):
        writer.append({"x": two}, two, two, two, no)
    with pytest.raises(ValueError, match="extras"):
        writer.append({"x": two}, two, two, no, no, extras={"version": two})
    assert writer.append({"x": two}, two, two, no, no) == 2


@pytest.mark.one_table_only("its table deletes sampled items: shards refuse it")
@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"n_step": 0}, "n_step"),
        ({"discount": 1.5}, "discount"),
        ({"num_envs": 0}, "num_envs"),
        ({"autoreset": "sometimes"}, "autoreset"),
        ({"timeout": -1.0}, "timeout"),
        ({"priority_eps": -1.0}, "priority_eps"),
        ({"priority_clip": 0.0}, "priority_clip must be above 0, or None, got 0"),
        ({"priority_clip": float("nan")}, "priority_clip must be above 0"),
    ],
)
def test_invalid_options_are_refused_when_they_are_given(connect, options, word):
    with pytest.raises(ValueError, match=word):
        connect(fifo()).transition_writer("t", **options)


@pytest.mark.one_table_only("its table deletes sampled items: shards refuse it")
def test_an_append_waits_only_while_too_much_is_in_flight(connect):
    client = connect(Table.queue("q", 2))
    writer = client.transition_writer("q", num_envs=1, max_in_flight_bytes=30, timeout=0)
    obs, no = np.zeros((1, 1)), np.zeros(1, bool)
    for _ in range(4):
        # Over a network an item is confirmed a little later than at once.
        with contextlib.suppress(reverie.DeadlineExceededError):
            writer.append(obs, obs, [0.0], no, no)
        writer.flush(1, timeout=200)
    with pytest.raises(reverie.DeadlineExceededError, match="table 'q'") as raised:
        writer.append(obs, obs, [0.0], no, no)
    assert "max_diff" in raised.value.why or "sample" in raised.value.why
    assert writer.num_in_flight >= 1
    with pytest.raises(reverie.DeadlineExceededError, match="flush"):
        writer.flush(timeout=0)
    client.sample_batch("q", 4, timeout=200)
    writer.flush(timeout=200)
    assert writer.num_in_flight == 0


@pytest.mark.one_table_only("its table deletes sampled items: shards refuse it")
def test_values_that_would_be_ignored_are_refused(connect):
    client = connect(fifo())
    one, no, yes = np.zeros(1), np.zeros(1, bool), np.ones(1, bool)
    writer = client.transition_writer("t", num_envs=1)
    for values in ({"q_taken": one}, {"bootstrap_value": one}):
        with pytest.raises(ValueError, match="go together"):
            writer.append(one, one, one, no, no, **values)
    both = {"q_taken": one, "bootstrap_value": one}
    with pytest.raises(ValueError, match="final_value"):
        writer.append(one, one, one, no, no, **both, final_value=one)
    writer = client.transition_writer("t", num_envs=1, autoreset="same_step")
    with pytest.raises(ValueError, match="final_value must give"):
        writer.append(one, one, one, no, yes, **both, final_obs=one)
    with pytest.raises(ValueError, match="final_value needs"):
        writer.append(one, one, one, no, yes, final_obs=one, final_value=one)
    assert client.info().tables["t"].current_size == 0


@pytest.mark.one_table_only("its table deletes sampled items: shards refuse it")
def test_a_terminal_step_needs_no_next_value_for_its_priority(connect):
    client = connect(fifo())
    writer = client.transition_writer("t", num_envs=1, autoreset="same_step", priority=7.0, priority_eps=0.5)
    one, no, yes = np.ones(1), np.zeros(1, bool), np.ones(1, bool)
    writer.append(one, one, 3 * one, yes, no, q_taken=one, bootstrap_value=one, final_obs=one)
    assert everything(client, writer).info.priority.tolist() == [abs(3 - 1) + 0.5]


def test_a_priority_that_the_table_refuses_is_refused_with_the_writer(connect):
    client = connect(Table("t", selectors.Prioritized(1.0), selectors.Fifo(), 100))
    for priority in (float("nan"), -1.0):
        with pytest.raises(ValueError, match="priority"):
            client.transition_writer("t", priority=priority)


@pytest.mark.one_table_only("its table deletes sampled items: shards refuse it")
def test_a_closed_writer_refuses_steps_that_would_be_lost(connect):
    client = connect(fifo())
    one, no = np.zeros(1), np.zeros(1, bool)
    with client.transition_writer("t", num_envs=1) as writer:
        writer.append(one, one, one, no, no)
        writer.end_episodes()
        writer.append(one, one, one, no, no)
    writer.close()
    with pytest.raises(reverie.ClosedError, match="make another"):
        writer.append(one, one, one, no, no)


@pytest.mark.one_table_only("its table deletes sampled items: shards refuse it")
@pytest.mark.parametrize("end", ["close", "end_episodes"])
def test_episodes_that_a_loop_leaves_bootstrap_from_their_last_observation(connect, end):
    client = connect(fifo())
    writer = client.transition_writer("t", n_step=2, discount=0.5, num_envs=1, priority_eps=0.0)
    for step in range(3):
        writer.append(
            np.array([step]),
            np.array([0]),
            [1.0],
            [False],
            [False],
            q_taken=np.array([10.0 + step]),
            bootstrap_value=np.array([100.0]),
        )
    getattr(writer, end)(bootstrap_value=np.array([40.0]))
    batch = everything(client, writer)
    assert batch.data["obs"].tolist() == [0, 1]
    # 1 + 0.5 + 0.25 * 100 - 10, which was known before, and 1 + 0.5 * 40 - 11.
    assert batch.info.priority.tolist() == pytest.approx([16.5, 10.0])
