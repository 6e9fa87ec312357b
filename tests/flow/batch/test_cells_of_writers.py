"""Cells of any size from the writers of transitions and patterns, dm-reverb's `Writer`, and one by one."""

import numpy as np
import pytest

from reverie import RaggedError, SignatureError, Table, TensorSpec, rate_limiters, selectors, structured

one_by_one = pytest.mark.one_table_only("its table deletes sampled items, in the order of their inserts")
in_process = pytest.mark.parametrize("connect", ["in-process"], indirect=True)

POINTS, TOKENS = TensorSpec((None, 2), np.float32), TensorSpec((None,), np.int32)
NUMBER = TensorSpec((), np.float32)
TRANSITION = {
    "obs": {"goal": NUMBER, "points": POINTS},
    "action": TOKENS,
    "reward": NUMBER,
    "discount": NUMBER,
    "next_obs": {"goal": NUMBER, "points": POINTS},
    "text": TOKENS,
}


def table(signature, **options):
    return Table(
        "t",
        remover=selectors.Fifo(),
        max_size=1000,
        rate_limiter=rate_limiters.MinSize(1),
        signature=signature,
        **{"sampler": selectors.Fifo(), "max_times_sampled": 1, **options},
    )


def points(size, number):
    return np.full((size, 2), number, np.float32)


def tokens(size, first=0):
    return np.arange(first, first + size, dtype=np.int32)


def observation(step, size, envs=None):
    if envs is None:
        return {"goal": np.float32(step), "points": points(size, step)}
    rows = [step + 100 * env for env in range(envs)]
    return {"goal": np.float32(rows), "points": np.stack([points(size, row) for row in rows])}


def transitions(client, count):
    """The items, by their goal: each column without padding."""
    batch = client.sample_batch("t", count, ragged="pad")

    def cells(column, mask, row):
        return column[row][mask[row]].tolist()

    data, mask = batch.data, batch.mask
    return {
        float(data["obs"]["goal"][row]): (
            cells(data["obs"]["points"], mask["obs/points"], row),
            cells(data["action"], mask["action"], row),
            float(data["reward"][row]),
            float(data["discount"][row]),
            float(data["next_obs"]["goal"][row]),
            cells(data["next_obs"]["points"], mask["next_obs/points"], row),
            cells(data["text"], mask["text"], row),
        )
        for row in range(count)
    }


@one_by_one
@pytest.mark.parametrize("n_step", [1, 3])
@pytest.mark.parametrize("envs", [None, 2])
@pytest.mark.parametrize("autoreset", ["next_step", "disabled"])
def test_transitions_of_cells_of_any_size_have_both_observations_whole(connect, n_step, envs, autoreset):
    client = connect(table(TRANSITION))
    episodes = [[3, 0, 5, 2, 2], [1, 4], [7] * 9]  # The sizes of the observations of each episode.
    expected, first = {}, 0
    options = {"n_step": n_step, "discount": 0.5, "num_envs": envs, "autoreset": autoreset}
    with client.transition_writer("t", **options) as writer:

        def rows(value):
            return value if envs is None else np.stack([value] * envs)

        def append(step, sizes, at, ended, final=None):
            writer.append(
                observation(first + at, sizes[at], envs),
                rows(tokens(step % 3, step)),
                np.float64(1) if envs is None else np.ones(envs),
                rows(np.array(ended)),
                rows(np.array(False)),
                extras={"text": rows(tokens(step % 4, step))},
                final_obs=final,
            )

        for sizes in episodes:
            last = len(sizes) - 1
            for at in range(last):
                ended = at == last - 1
                final = observation(first + last, sizes[last], envs) if ended and autoreset == "disabled" else None
                append(first + at, sizes, at, ended, final)
                to = min(at + n_step, last)
                for env in range(envs or 1):
                    step, number = first + at, first + at + 100 * env
                    expected[float(number)] = (
                        points(sizes[at], number).tolist(),
                        tokens(step % 3, step).tolist(),
                        sum(0.5**k for k in range(to - at)),
                        0.0 if to == last else 0.5 ** (to - at),
                        float(first + to + 100 * env),
                        points(sizes[to], first + to + 100 * env).tolist(),
                        tokens(step % 4, step).tolist(),
                    )
            if autoreset == "next_step":
                append(first + last, sizes, last, False)
            first += len(sizes)
    assert transitions(client, len(expected)) == expected


@in_process
def test_transitions_of_several_sizes_are_refused_in_a_stack_and_where_no_signature_asks_for_them(connect):
    stack = TensorSpec((2, None, 2), np.float32)
    client = connect(
        table({**TRANSITION, "obs": POINTS, "next_obs": POINTS}),
        table(None).replace(name="u"),
        table({**TRANSITION, "obs": stack, "next_obs": stack}).replace(name="frames"),
    )
    with client.transition_writer("frames", frame_stack=2) as writer:
        for _ in range(3):
            writer.append(points(3, 0), tokens(1), 1.0, False, False, extras={"text": tokens(2)})
        with pytest.raises(SignatureError, match=r"column 'obs': got float32 \[4, 2\], want float32 \[3, 2\]"):
            writer.append(points(4, 0), tokens(1), 1.0, False, False, extras={"text": tokens(2)})
    with client.transition_writer("u") as writer:
        writer.append(points(3, 0), np.int64(1), 1.0, False, False)
        with pytest.raises(SignatureError, match=r"column 'obs': got float32 \[4, 2\], want float32 \[3, 2\]"):
            writer.append(points(4, 0), np.int64(1), 1.0, False, False)
    with client.transition_writer("t") as writer:
        writer.append(points(3, 0), tokens(1), 1.0, False, False, extras={"text": tokens(2)})
        for other in (points(4, 0).astype(np.float64), points(4, 0)[:, :1]):
            with pytest.raises(SignatureError, match=r"column 'obs': .* want float32 \[any, 2\], as in the first call"):
                writer.append(other, tokens(1), 1.0, False, False, extras={"text": tokens(2)})


@in_process
def test_a_column_to_which_another_table_gives_a_size_has_it_in_the_writers_of_both(connect):
    scalars, vectors = TensorSpec((None,), np.float32), TensorSpec((None, 3), np.float32)
    client = connect(table({"obs": scalars}), table({"obs": vectors}).replace(name="u"))
    with client.writer(2) as writer:
        for _ in range(2):
            writer.append({"obs": np.zeros(3, np.float32)})
        writer.create_item("u", 2, 1.0)
    assert client.sample_batch("u", 1).data["obs"].shape == (1, 2, 3)


def configs():
    step = structured.create_reference_step({"points": None, "action": None, "text": None})
    pattern = {
        "last": step["points"][-1],
        "two": step["points"][-2:],
        "action": step["action"][-2:],
        "text": step["text"][-1],
    }
    return [structured.create_config(pattern, "t")]


PATTERN = {
    "last": POINTS,
    "two": TensorSpec((2, None, 2), np.float32),
    "action": TensorSpec((2,), np.float32),
    "text": TOKENS,
}


@one_by_one
def test_patterns_take_cells_of_any_size_alone_and_in_sequences(connect):
    client = connect(table(PATTERN))
    sizes = [3, 0, 5, 2]
    with client.structured_writer(configs()) as writer:
        for step, size in enumerate(sizes):
            writer.append({"points": points(size, step), "action": np.float32(step), "text": tokens(size)})
    batch = client.sample_batch("t", 3, ragged="values")
    assert batch.lengths["last"].tolist() == sizes[1:]
    assert batch.lengths["two"].tolist() == [sizes[at : at + 2] for at in range(3)]
    assert batch.lengths["text"].tolist() == sizes[1:]
    assert batch.data["last"][:, 0].tolist() == [2.0] * 5 + [3.0] * 2
    assert batch.data["two"][:, 1].tolist() == [0.0] * 3 + [2.0] * 10 + [3.0] * 2
    assert batch.data["text"].tolist() == [*range(5), 0, 1]


@in_process
def test_patterns_refuse_cells_of_several_sizes_for_columns_that_the_signature_does_not_open(connect):
    client = connect(table({**PATTERN, "text": TensorSpec((3,), np.int32)}))
    with client.structured_writer(configs()) as writer:
        writer.append({"points": points(1, 0), "action": np.float32(0), "text": tokens(3)})
        with pytest.raises(SignatureError, match=r"column 'text': got int32 \[4\], want int32 \[3\]"):
            writer.append({"points": points(2, 0), "action": np.float32(0), "text": tokens(4)})
        with pytest.raises(
            SignatureError, match=r"column 'points': .* want float32 \[any, 2\], as in the steps before"
        ):
            writer.append({"points": points(2, 0)[0], "action": np.float32(0), "text": tokens(3)})


@one_by_one
def test_the_writer_of_dm_reverb_takes_cells_of_any_size(connect):
    client = connect(table({"x": TensorSpec((None, None, 2), np.float32), "r": TensorSpec((None,), np.float32)}))
    with client.writer(2) as writer:
        for step, size in enumerate([3, 0, 5]):
            writer.append({"x": points(size, step), "r": np.float32(step)})
            if step:
                writer.create_item("t", 2, 1.0)
    batch = client.sample_batch("t", 2, ragged="values")
    assert batch.lengths["x"].tolist() == [[3, 0], [0, 5]]
    assert batch.data["r"].tolist() == [0.0, 1.0, 1.0, 2.0]


SEQUENCE = {"points": TensorSpec((None, None, 2), np.float32), "reward": TensorSpec((None,), np.float32)}


@pytest.fixture
def sequences(connect):
    """A client whose table has two sequences: of the sizes 3, 0, 5, and of 2, 2, 2."""
    client = connect(table(SEQUENCE))
    for sizes in ([3, 0, 5], [2, 2, 2]):
        with client.episode_writer("t") as writer:
            for step, size in enumerate(sizes):
                writer.append({"points": points(size, step), "reward": np.float32(step)})
            writer.end_episode()
    return client


@one_by_one
def test_sequences_whose_cells_differ_are_read_step_by_step_with_the_sizes_that_they_have(sequences):
    for sizes, steps in zip(
        ([3, 0, 5], [2, 2, 2]), sequences.sample("t", 2, unpack_as_table_signature=True), strict=True
    ):
        assert [sample.data["points"].tolist() for sample in steps] == [
            points(size, step).tolist() for step, size in enumerate(sizes)
        ]
        assert [float(sample.data["reward"]) for sample in steps] == [0.0, 1.0, 2.0]


@one_by_one
def test_a_whole_sequence_whose_cells_differ_is_refused_and_not_lost(sequences):
    with pytest.raises(
        RaggedError, match=r"column 'points': its cells have the sizes 0, 3, 5; pass emit_timesteps"
    ) as e:
        next(sequences.sample("t", 1, emit_timesteps=False))
    [batch] = e.value.drawn
    assert batch.mask["points"].sum(axis=2).tolist() == [[3, 0, 5]]
    assert len(batch) == len(batch.info.key) == 1
    [sample] = sequences.sample("t", 1, emit_timesteps=False, unpack_as_table_signature=True)
    assert sample.data["points"].shape == (3, 2, 2)


def test_single_steps_that_are_drawn_together_have_the_sizes_that_they_have(connect):
    signature = {"size": TensorSpec((), np.int32), "tokens": TOKENS, "wide": TensorSpec((7,), np.float32)}
    client = connect(table(signature, sampler=selectors.Uniform(seed=1), max_times_sampled=0))
    for size in (7, 0, 4, 2):
        client.insert({"size": np.int32(size), "tokens": tokens(size), "wide": np.ones(7, np.float32)}, {"t": 1.0})
    seen = set()
    for [sample] in client.sample("t", 40, unpack_as_table_signature=True):
        seen.add(int(sample.data["size"]))
        assert sample.data["tokens"].tolist() == tokens(int(sample.data["size"])).tolist()
        assert sample.data["wide"].tolist() == [1.0] * 7
    assert seen == {7, 0, 4, 2}
