"""Memory that a run has freed goes back to the system while it lasts."""

import ctypes
import platform
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

from reverie import agents
from reverie.agents.core import RunSettings
from reverie.runners import train
from reverie.runners.roles import heap_trim

needs_glibc = pytest.mark.skipif(
    sys.platform != "linux" or platform.libc_ver()[0] != "glibc", reason="the C library has no malloc_trim"
)
BLOCK, BLOCKS = 100_000, 400


def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@needs_glibc
def test_free_memory_between_used_blocks_is_returned():
    libc = ctypes.CDLL(None)
    libc.malloc.restype, libc.malloc.argtypes, libc.free.argtypes = (
        ctypes.c_void_p,
        [ctypes.c_size_t],
        [ctypes.c_void_p],
    )
    # A small one behind every large one: the heap cannot shrink from its end.
    large, small = [], []
    for _ in range(BLOCKS):
        large.append(libc.malloc(BLOCK))
        ctypes.memset(large[-1], 1, BLOCK)
        small.append(libc.malloc(BLOCK // 10))
    for block in large:
        libc.free(block)
    before = resident()
    assert heap_trim.trim_heap()
    given = before - resident()
    for block in small:
        libc.free(block)
    assert given > BLOCK * BLOCKS / 2


def test_without_malloc_trim_nothing_happens_and_that_is_returned(monkeypatch):
    monkeypatch.setattr(heap_trim, "_malloc_trim", lambda: None)
    assert heap_trim.trim_heap() is False


def test_memory_is_trimmed_when_it_is_due(monkeypatch):
    now, given = [100.0], []
    monkeypatch.setattr(heap_trim.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(heap_trim, "trim_heap", lambda: given.append(now[0]))
    free = heap_trim.HeapTrimmer()
    for later in (0.0, heap_trim.SECONDS - 1, heap_trim.SECONDS, heap_trim.SECONDS + 1, 2 * heap_trim.SECONDS):
        now[0] = 100.0 + later
        free.trim_if_due()
    assert given == [100.0 + heap_trim.SECONDS, 100.0 + 2 * heap_trim.SECONDS]


RUN = RunSettings(
    target_return=10_000.0,
    max_env_steps=600,
    evaluate_every=600,
    checkpoint_every=10**9,
    screening_episodes=1,
    confirmation_episodes=1,
)


def test_a_run_in_one_process_returns_memory(monkeypatch):
    given = []
    monkeypatch.setattr(heap_trim, "SECONDS", 0.0)
    monkeypatch.setattr(heap_trim, "trim_heap", lambda: given.append(1))
    agent = agents.find("dqn")
    train(agent, "CartPole-v1", run=RUN, config=agent.load_preset("CartPole-v1").config)
    assert len(given) > 10
