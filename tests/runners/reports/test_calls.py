import threading
from types import SimpleNamespace

import pytest

from reverie.runners.reports import calls as module
from reverie.runners.reports.calls import BackgroundCalls, DirectCalls


def fails(error):
    raise error


def test_calls_of_a_thread_are_made_in_order_and_none_is_left_after_close():
    calls, made = BackgroundCalls(), []
    for number in range(100):
        calls(made.append, number)
    calls.close(made.append, "closed")
    assert made == [*range(100), "closed"]
    assert calls.problem == ""


def test_a_call_that_raises_is_a_problem_and_later_calls_are_made():
    for calls in (BackgroundCalls(), DirectCalls()):
        made = []
        calls(fails, OSError("no such run\nand a second line"))
        if isinstance(calls, DirectCalls):
            assert calls.problem == "no such run"
            calls(made.append, 1)
            assert calls.problem == ""
            calls(fails, OSError(28, "No space left on device"))
        else:
            calls(made.append, 1)
        calls.close(made.append, 2)
        assert made == [1, 2]
        assert calls.problem == ("no such run" if isinstance(calls, BackgroundCalls) else "No space left on device")


def test_an_error_of_a_program_is_raised_where_a_call_is_made_at_once():
    with pytest.raises(AttributeError, match="no attribute"):
        DirectCalls()(fails, AttributeError("'str' object has no attribute 'mkdir'"))


def test_a_caller_never_waits_for_a_service_that_hangs_and_what_is_left_out_is_a_problem():
    calls, released, made = BackgroundCalls(waiting=2, close_seconds=0.01), threading.Event(), []
    try:
        calls(released.wait)
        for number in range(5):
            calls(made.append, number)
        assert calls.problem == "2 updates wait for it, and later ones are left out"
        calls.close(made.append, "closed")
        assert made == []
    finally:
        released.set()


def test_a_service_that_does_not_take_the_last_updates_is_a_problem():
    calls, released = BackgroundCalls(close_seconds=0.01), threading.Event()
    try:
        calls(released.wait)
        calls.close(released.wait)
        assert calls.problem == "it did not take the last updates within 0.01 s"
    finally:
        released.set()


def test_close_waits_no_longer_than_its_seconds_in_all(monkeypatch):
    now, waited, released = [5.0], [], threading.Event()
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    calls = BackgroundCalls(close_seconds=60.0)

    def wait(seconds):
        waited.append(seconds)
        now[0] += 35.0

    calls(released.wait)
    monkeypatch.setattr(calls._queue, "put", lambda call, timeout: wait(timeout))
    monkeypatch.setattr(calls._thread, "join", wait)
    try:
        calls.close(released.wait)
        assert waited == [60.0, 25.0, 0.0]
        assert calls.problem == "it did not take the last updates within 60 s"
    finally:
        released.set()
        monkeypatch.undo()
        calls._queue.put(None)


def test_a_log_without_any_call_has_nothing_to_close():
    calls = BackgroundCalls()
    calls.close(fails, AssertionError("it was never opened"))
    assert calls.problem == ""
