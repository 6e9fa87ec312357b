"""Records a learner's updates on a GPU, and then makes them by replaying the recording (a CUDA graph).

An update of a small network is a hundred calls of PyTorch, and takes the processor longer than the GPU. A recording is
one call: the same operations on the same memory, so state and numbers are those of single operations.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor

from reverie._picklable import Picklable
from reverie.agents import tracing
from reverie.agents.core import CompileNote, CompilePlan
from reverie.agents.optimizers import FlatOptimizer
from reverie.agents.tracing import GraphState, Result, Single, UpdateNoise

TOLERANCE = 0.02
"""Largest distance of the first replayed update from the one by single operations, as a share of its length."""

Record = Callable[[Callable[[], Result], torch.device], tuple[Result, Callable[[], None]]]
"""Records what a function does on a device, without doing it; returns what a replay fills, and the replay."""


class RecordingError(Picklable, RuntimeError):
    """The updates cannot be recorded on the GPU."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the updates cannot be recorded on the GPU: {reason}; compile=off trains without")


def record_on_gpu(run: Callable[[], Result], device: torch.device) -> tuple[Result, Callable[[], None]]:
    """See `Record`. Other threads may use the GPU meanwhile, on streams of their own.

    Raises `RecordingError` for what cannot be recorded, such as `.item()`. After that the process cannot go on: PyTorch
    keeps memory that is freed.
    """
    graph, failed = torch.cuda.CUDAGraph(), None
    stream: Any = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    try:
        with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
            try:
                result = run()
            except Exception as error:  # the end of the recording raises another one
                failed = error
                raise
    except Exception as error:
        why = failed or error
        raise RecordingError(f"{type(why).__name__}: {why}".splitlines()[0]) from why
    return result, graph.replay


class RecordedUpdate:
    """One kind of update, recorded."""

    def __init__(self, learner: Any, columns: Mapping[str, Tensor], single: Single, record: Record) -> None:
        self._columns = {name: column.clone() for name, column in columns.items()}
        """The memory that a replay reads its batch from."""
        self._rates: list[tuple[FlatOptimizer, Tensor]] = []
        with ExitStack() as stack:
            for optimizer in learner._optimizers.values():
                rate = torch.tensor(optimizer.rate, dtype=torch.float32, device=learner._device)
                self._rates.append((optimizer, rate))
                stack.enter_context(optimizer.recording(rate))
            self._result, self._replay = record(lambda: single(self._columns), learner._device)

    def fits(self, columns: Mapping[str, Tensor]) -> bool:
        """Whether it was recorded for columns like these."""
        return columns.keys() == self._columns.keys() and all(
            columns[name].shape == own.shape and columns[name].dtype == own.dtype for name, own in self._columns.items()
        )

    def __call__(self, columns: Mapping[str, Tensor]) -> Result:
        """Make the learner's next update of these columns. The next call overwrites the result."""
        for name, own in self._columns.items():
            own.copy_(columns[name])
        for optimizer, rate in self._rates:
            rate.fill_(optimizer.rate)
        self._replay()
        return self._result


class UpdateRecorder:
    """Makes a learner's updates by recordings, from a planned update on. As `compiling.UpdateCompiler`."""

    def __init__(self, learner: Any, plan: CompilePlan, record: Record = record_on_gpu) -> None:
        self._learner, self._plan, self._record = learner, plan, record
        self._recorded: dict[int, RecordedUpdate] = {}
        self._failed = False
        self._num_before = 0
        """Updates that were made before the first recording, since the start or since a state was loaded."""
        self._notes: list[CompileNote] = []
        self.num_compiled = 0
        """Updates that a recording made."""

    def ready(self) -> bool:
        """True: recording an update takes as long as a few of them."""
        return True

    def drain_notes(self) -> list[CompileNote]:
        """Notes about updates that were recorded, or could not be, since the last call."""
        notes, self._notes = self._notes, []
        return notes

    def forget_state(self) -> None:
        """Record again: the learner has other tensors."""
        self._recorded.clear()
        self._num_before = 0

    def close(self) -> None:
        """Forget all recordings. The learner makes its next updates by single operations."""
        self._recorded.clear()
        self._failed = True

    def update(self, columns: dict[str, Tensor], single: Single) -> Result | None:
        """Make the next update by its recording; None, having done nothing, if it is to be made as others are.

        Raises `RecordingError` if the plan requires recordings, and there are none.
        """
        learner = self._learner
        if self._failed:
            return None
        if self._num_before < self._plan.begin:
            self._num_before += 1
            return None
        kind = learner._kind(learner.version)
        recorded = self._recorded.get(kind)
        if recorded is None:
            result = self._first(kind, columns, single)
        else:
            result = recorded(columns) if recorded.fits(columns) else None
        self.num_compiled += result is not None
        return result

    def _first(self, kind: int, columns: dict[str, Tensor], single: Single) -> Result | None:
        """Record this update and make it; None, having done nothing, if that fails.

        It is made by single operations too, on copies of the state, and must agree.
        """
        learner, began = self._learner, time.monotonic()
        if learner._generator is not None:
            self._fail("they draw random numbers from a generator of their own", began)
            return None
        kept = _everything(learner)
        try:
            state = GraphState(learner)
            copies = [one.clone() for one in state.tensors]
            before = [one.clone() for one in state.tensors]
            expected = tracing.run(learner, single, copies, state.factors().clone(), UpdateNoise([]), columns)
            recorded = RecordedUpdate(learner, columns, single, self._record)
            result = recorded(columns)
        except RecordingError:
            _restore(kept)
            self.close()
            raise
        except Exception as error:  # of PyTorch, before or after the recording
            _restore(kept)
            self._fail(f"{type(error).__name__}: {error}".splitlines()[0], began)
            return None
        if not tracing.agree(before, (copies, expected), (state.tensors, result), TOLERANCE):
            _restore(kept)
            self._fail("a replayed update differs from the same update by single operations", began)
            return None
        self._recorded[kind] = recorded
        self._notes.append(CompileNote(learner.version, time.monotonic() - began, False))
        return result

    def _fail(self, reason: str, began: float) -> None:
        self.close()
        if self._plan.required:
            raise RecordingError(reason)
        self._notes.append(CompileNote(self._learner.version, time.monotonic() - began, False, reason))


def _restore(kept: list[tuple[Tensor, Tensor]]) -> None:
    for tensor, copied in kept:
        tensor.copy_(copied)


def _everything(learner: Any) -> list[tuple[Tensor, Tensor]]:
    """The tensors that an update changes, counts of steps included, each with a copy."""
    tensors = [network.flat.detach() for network in learner._networks.values()]
    for optimizer in learner._optimizers.values():
        for state in optimizer.state.values():
            tensors += [one for one in state.values() if isinstance(one, Tensor)]
    return [(one, one.clone()) for one in tensors]
