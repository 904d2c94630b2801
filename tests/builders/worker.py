"""Builders for the rollout worker: units, leases, chunks, published weights, a machine that checks its invariants."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from rollout_worker import events as ev
from rollout_worker.engines.base import TokenChunk
from rollout_worker.held import HeldUnit, UnitPhase
from rollout_worker.machine import MachineSettings, WorkerMachine
from scaler.ledger.contract import Beat, CommitOutcome, Control, LeaseReply
from scaler.model.weights import MANIFEST_FILE, MARKER_FILE, WEIGHTS_FILE, WeightManifest, version_folder
from scaler.model.work import FencingToken, FinishReason, Lease, PolicyVersion, Progress, Resume, VersionSpan, WorkUnit

I = TypeVar("I")  # noqa: E741 (the kind of instruction)


def a_unit(
    group: str = "g",
    index: int = 0,
    *,
    group_size: int = 1,
    max_tokens: int = 20,
    time_bound_s: float = 1000.0,
    resume: Resume = Resume.TOKEN,
    prompt: tuple[int, ...] = (1, 2),
    seed: int = 7,
) -> WorkUnit:
    return WorkUnit(
        group_id=group,
        sample_index=index,
        group_size=group_size,
        prompt=prompt,
        seed=seed + index,
        max_tokens=max_tokens,
        time_bound_s=time_bound_s,
        resume=resume,
    )


def a_progress(tokens: int, version: int = 1) -> Progress:
    spans = (VersionSpan(0, tokens, version),) if tokens else ()
    return Progress(tokens=tuple(range(tokens)), logprobs=(-1.0,) * tokens, spans=spans)


def a_lease(unit: WorkUnit | None = None, *, fence: int = 1, done: int = 0) -> Lease:
    return Lease(
        unit=unit or a_unit(),
        owner="w",
        fencing_token=FencingToken(1, fence),
        attempt=1,
        deadline_s=1e9,
        progress=a_progress(done),
    )


def a_chunk(tokens: int = 1, *, version: int = 1, finish: FinishReason | None = None) -> TokenChunk:
    return TokenChunk(tokens=(5,) * tokens, logprobs=(-0.5,) * tokens, version=version, finish_reason=finish)


def a_control(
    *,
    drain_in_s: float | None = None,
    abandon: tuple[str, ...] = (),
    lost: tuple[str, ...] = (),
    version: int | None = None,
) -> Control:
    """The store's clock stands at 5000 s."""
    deadline_s = None if drain_in_s is None else 5000.0 + drain_in_s
    return Control(store_now_s=5000.0, drain_deadline_s=deadline_s, abandon=abandon, lost=lost, version=version)


def publish_weights(root: Path, step: int, body: bytes = b"weights", model: dict[str, int] | None = None) -> Path:
    """A complete version, laid out as the trainer does."""
    version = PolicyVersion(step, hashlib.sha256(body).hexdigest())
    folder = root / version_folder(version)
    folder.mkdir(parents=True)
    (folder / WEIGHTS_FILE).write_bytes(body)
    manifest = WeightManifest(version=version, size_bytes=len(body), parent_step=None, model=dict(model or {}))
    (folder / MANIFEST_FILE).write_text(manifest.dump())
    (folder / MARKER_FILE).touch()
    return folder


@dataclass(slots=True)
class Driven:
    """A machine, its clock, and all it said. After every event its invariants are checked."""

    machine: WorkerMachine
    now_s: float = 0.0
    said: list[ev.Instruction] = field(default_factory=list)
    running: set[str] = field(default_factory=set)
    """Generations the engine was asked for and neither ended nor was told to stop."""

    def hear(self, event: ev.Event) -> list[ev.Instruction]:
        said = list(self.machine.handle(replace(event, at_s=self.now_s)))
        self.said += said
        for instruction in said:
            match instruction:
                case ev.Generate(request):
                    assert request.request_id not in self.running
                    self.running.add(request.request_id)
                case ev.Abort(request_id):
                    self.running.remove(request_id)
                case _:
                    pass
        self.check()
        return said

    def check(self) -> None:
        """Generating exactly what the engine generates; a unit to be committed is finished; no unit is in two places."""
        generating = {unit.request_id for unit in self.machine.in_phase(UnitPhase.GENERATING)}
        assert generating == self.running
        by_phase = [self.machine.in_phase(phase) for phase in UnitPhase]
        assert sum(len(units) for units in by_phase) == len(self.machine.units)
        for unit in self.machine.units.values():
            assert unit.phase is not UnitPhase.TO_COMMIT or unit.finish_reason is not None
            assert len(unit.tokens) == len(unit.logprobs) <= unit.lease.unit.max_tokens
            assert covers(unit.spans, len(unit.tokens))
            assert 0 <= unit.published <= len(unit.tokens)

    def later(self, seconds: float) -> list[ev.Instruction]:
        self.now_s += seconds
        return self.hear(ev.Tick(at_s=0))

    def idle(self) -> ev.LedgerCall | None:
        """Which ledger call it makes now."""
        calls = [said for said in self.hear(ev.LedgerIdle(at_s=0)) if isinstance(said, ev.LedgerCall)]
        assert len(calls) <= 1
        return calls[0] if calls else None

    def grant(self, *leases: Lease, control: Control | None = None) -> list[ev.Instruction]:
        reply = LeaseReply(leases=leases, control=control or a_control())
        return self.hear(ev.LeasesGranted(at_s=0, sent_at_s=self.now_s, reply=reply))

    def beats(self) -> tuple[Beat, ...]:
        """What a heartbeat now has to say of the units."""
        return tuple(unit.beat(with_progress=True) for unit in self.machine.units.values())

    def beat(self, control: Control | None = None) -> list[ev.Instruction]:
        """A heartbeat with all that is due, answered."""
        call = ev.SendBeats(self.beats(), self.machine.status())
        answer = control or a_control()
        return self.hear(ev.BeatsAnswered(at_s=0, sent_at_s=self.now_s, call=call, control=answer))

    def chunk(self, unit: HeldUnit | str, chunk: TokenChunk | None = None) -> list[ev.Instruction]:
        request_id = unit if isinstance(unit, str) else unit.request_id
        chunk = chunk or a_chunk()
        if chunk.finish_reason is not None:
            self.running.discard(request_id)
        return self.hear(ev.ChunkReceived(at_s=0, request_id=request_id, chunk=chunk))

    def fail(self, request_id: str, event: ev.GenerationFailed) -> list[ev.Instruction]:
        self.running.discard(request_id)
        return self.hear(event)

    def order(self, source: ev.DrainSource, in_s: float) -> list[ev.Instruction]:
        return self.hear(ev.DrainOrdered(at_s=0, source=source, deadline_at_s=self.now_s + in_s))

    def answer(self, call: ev.LedgerCall | None, outcome: CommitOutcome = CommitOutcome.COMMITTED) -> None:
        """The ledger answers a call, other than for leases, as one in good order does."""
        match call:
            case ev.SendBeats():
                self.hear(ev.BeatsAnswered(at_s=0, sent_at_s=self.now_s, call=call, control=a_control()))
            case ev.SendCommits(commits):
                self.hear(ev.CommitsAnswered(at_s=0, call=call, outcomes=(outcome,) * len(commits)))
            case ev.SendReleases():
                self.hear(ev.ReleasesAnswered(at_s=0, call=call))
            case ev.SayGoodbye():
                self.hear(ev.GoodbyeAnswered(at_s=0))
            case _:
                raise AssertionError(f"no plain answer to {call}")


def covers(spans: Sequence[VersionSpan], length: int) -> bool:
    """Contiguous, in order, from 0 to `length`."""
    edges = [0]
    for span in spans:
        if span.start != edges[-1] or span.end <= span.start:
            return False
        edges.append(span.end)
    return edges[-1] == length


def a_machine(*leases: Lease, **settings: float | None) -> Driven:
    """Registered, ready at version 1, its last heartbeat just answered, holding `leases`."""
    driven = Driven(WorkerMachine(MachineSettings(**settings)))  # type: ignore[arg-type]  # by name, as given
    driven.hear(ev.Registered(at_s=0))
    driven.hear(ev.EngineSeen(at_s=0, healthy=True, version=1))
    driven.beat()
    if leases:
        driven.grant(*leases)
    return driven


def of_kind(said: Sequence[ev.Instruction], kind: type[I]) -> list[I]:
    """The instructions of one kind."""
    return [instruction for instruction in said if isinstance(instruction, kind)]
