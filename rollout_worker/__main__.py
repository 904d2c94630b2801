"""`python -m rollout_worker`: one worker for one job.

Exit codes: 0 handed over, 1 the engine did not come up or the worker broke, 2 the input is wrong or the store refuses to
be used, 3 told to leave and the ledger stayed away until the deadline.
"""

import argparse
import asyncio
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from rollout_worker import logs
from rollout_worker.agent import EXIT_INPUT_WRONG, Agent, AgentSettings, Parts
from rollout_worker.clock import SystemClock
from rollout_worker.engines.base import Engine, EngineError
from rollout_worker.engines.registry import ENGINES, open_engine
from rollout_worker.instance import named_instance
from rollout_worker.ledger_thread import LedgerThread
from rollout_worker.machine import MachineSettings, WorkerMachine
from rollout_worker.token_counter import TokenCounter
from rollout_worker.weights import Pacing, WeightsFolder
from scaler.ledger.contract import LedgerRefused
from scaler.ledger.registry import open_ledger
from scaler.model.job import WorkerIdentity

_EXIT_ENGINE = 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a worker until it is told to leave; returns the exit code."""
    options = parser().parse_args(arguments)
    logs.configure_logs()
    clock = SystemClock()
    try:
        engine = open_engine(options.engine, dict(options.engine_option), clock)
        counter = TokenCounter(options.token_counter)
    except (ValueError, OSError) as error:
        print(f"rollout_worker: {error}", file=sys.stderr)  # noqa: T201 (for a person, before there is anything to log)
        return EXIT_INPUT_WRONG
    with counter:
        return asyncio.run(_run(options, engine, counter, clock))


async def _run(options: argparse.Namespace, engine: Engine, counter: TokenCounter, clock: SystemClock) -> int:
    try:
        instance_id = options.instance_id or await named_instance(options.instance_file, clock)
    except ValueError as error:
        logs.warning("instance_unknown", error=str(error))
        return EXIT_INPUT_WRONG
    parts = Parts(
        machine=WorkerMachine(_machine_settings(options)),
        ledger=LedgerThread(lambda: open_ledger(options.ledger, options.job), timeout_s=options.ledger_timeout_s),
        engine=engine,
        weights=WeightsFolder(options.weights, _pacing(options, clock)),
        counter=counter,
        clock=clock,
    )
    agent = Agent(_identity(options, instance_id), _agent_settings(options), parts)
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, agent.drain_on, number)
    code = 0
    try:
        code = await agent.run()
    except* LedgerRefused as group:
        logs.warning("ledger_refused", error=str(group.exceptions[0]))
        code = EXIT_INPUT_WRONG
    except* EngineError as group:
        logs.warning("engine_failed", error=str(group.exceptions[0]))
        code = _EXIT_ENGINE
    return code


def _pacing(options: argparse.Namespace, clock: SystemClock) -> Pacing | None:
    spread_s = options.weights_spread_s
    return Pacing(worker=options.worker, spread_s=spread_s, clock=clock) if spread_s else None


def _identity(options: argparse.Namespace, instance_id: str) -> WorkerIdentity:
    return WorkerIdentity(
        worker=options.worker,
        replica_id=options.replica_id,
        instance_id=instance_id,
        pod_uid=options.pod_uid,
        node_uid=options.node_uid,
    )


def _machine_settings(options: argparse.Namespace) -> MachineSettings:
    return MachineSettings(
        concurrency=options.concurrency,
        heartbeat_s=options.heartbeat_s,
        publish_tokens=options.publish_tokens,
        publish_interval_s=options.publish_interval_s,
        publish_progress=options.progress,
        min_version=options.min_version,
        drain_margin_s=options.drain_margin_s,
    )


def _agent_settings(options: argparse.Namespace) -> AgentSettings:
    return AgentSettings(lease_ttl_s=options.lease_ttl_s, notice_file=options.notice_file, grace_s=options.grace_s)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    parse = argparse.ArgumentParser(prog="python -m rollout_worker", description="Generate units of a job's ledger.")
    _add_identity(parse)
    _add_engine(parse)
    _add_rhythm(parse)
    return parse


def _add_identity(parse: argparse.ArgumentParser) -> None:
    add = parse.add_argument
    add("--ledger", required=True, help="ledger URL, for example sqlite:///absolute/path")
    add("--job", required=True, help="job name")
    add("--worker", required=True, help="name, unique among live workers")
    add("--replica-id", required=True, help="the worker replica that this process is, or leads")
    instance = parse.add_mutually_exclusive_group(required=True)
    instance.add_argument("--instance-id", help="the instance it runs on: how a notice finds it")
    instance.add_argument(
        "--instance-file", type=Path, help="file of the node agent that names the instance it runs on"
    )
    add("--pod-uid", default="", help="UID of its pod")
    add("--node-uid", default="", help="UID of its node")
    add("--notice-file", type=Path, help="file in which this node's interruption notice appears")
    add("--token-counter", type=Path, help="file that counts tokens generated, and those at risk, and survives kill -9")


def _add_engine(parse: argparse.ArgumentParser) -> None:
    add = parse.add_argument
    add("--engine", required=True, choices=sorted(ENGINES), help="what generates")
    add("--engine-option", action="append", type=_pair, default=[], metavar="KEY=VALUE", help="option of the engine")
    add("--weights", type=Path, required=True, help="folder in which the trainer publishes versions")
    add(
        "--weights-spread",
        dest="weights_spread_s",
        type=_not_negative,
        default=0.0,
        metavar="S",
        help="workers load a version within so many seconds, each at its own time, so that its source is not flooded",
    )
    add("--min-version", type=int, help="not ready before this policy version is loaded")
    add("--concurrency", type=_positive_int, default=8, help="units generated at a time")


def _add_rhythm(parse: argparse.ArgumentParser) -> None:
    add = parse.add_argument
    add("--lease-ttl", dest="lease_ttl_s", type=_positive, default=10.0, metavar="S", help="length of a lease")
    add("--heartbeat-s", type=_heartbeat, default=1.0, help="longest time between heartbeats, 2 at most")
    add(
        "--publish-tokens",
        type=_positive_int,
        default=8,
        help="unpublished tokens of a unit that are published at once",
    )
    add("--publish-interval-s", type=_positive, default=0.5, help="age at which unpublished tokens are published")
    add("--no-progress", dest="progress", action="store_false", help="publish and hand over no tokens at all")
    add("--grace-s", type=_positive, default=30.0, help="time from SIGTERM until the process is killed")
    add("--drain-margin-s", type=_positive, default=10.0, help="be done this long before a deadline")
    add(
        "--ledger-timeout-s", type=_positive, default=5.0, help="a ledger call without an answer for so long has failed"
    )


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return key, value


def _positive(text: str) -> float:
    number = float(text)
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not above 0")
    return number


def _not_negative(text: str) -> float:
    number = float(text)
    if not 0 <= number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is below 0")
    return number


def _heartbeat(text: str) -> float:
    number = _positive(text)
    if number > 2:
        raise argparse.ArgumentTypeError(f"{text!r}: the ledger wants to hear of a worker every 2 s")
    return number


def _positive_int(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not at least 1")
    return number


if __name__ == "__main__":
    sys.exit(main())
