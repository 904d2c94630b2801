"""kill -9 of a client, at every step of what it does and at random instants, leaves none or all of each call."""

import os
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path
from random import Random

import pytest

from tests.ledger.factories import ENGINES, LedgerFactory
from tests.ledger.victim import Opener, check_after_death, check_consistent, live_and_die, live_on, prepare

KILLS = 120
PROCESSES = get_context("fork")
"""Each victim is a fork that opens its own client: with a new interpreter for each, hundreds would take minutes. Nobody
else has a client open meanwhile, since connections do not survive a fork."""


def run_victim(
    target: Callable[..., None], opener: Opener, argument: int, kill_after: Callable[[int], None]
) -> list[str]:
    """Run a victim to its end, natural or not; returns the lines it wrote."""
    reader, writer = os.pipe()
    victim = PROCESSES.Process(target=target, args=(opener, writer, argument))
    victim.start()
    os.close(writer)
    kill_after(reader)
    if target is live_on:
        victim.kill()
    with os.fdopen(reader) as lines:
        written = lines.read().split("\n")[:-1]
    victim.join()
    victim.close()
    return written


@pytest.mark.parametrize("engine", sorted(ENGINES))
def test_a_client_killed_at_any_step_leaves_none_or_all_of_each_call(engine: str, tmp_path: Path) -> None:
    def live(number: int, at_event: int) -> list[str]:
        (tmp_path / str(number)).mkdir()
        factory: LedgerFactory = ENGINES[engine](tmp_path / str(number))
        prepare(factory).close()
        done = run_victim(live_and_die, factory.opener(), at_event, lambda _: None)
        check_after_death(factory, factory.open(), done)
        factory.close()
        return done

    *story, events = live(0, 0)
    assert story[-1] == "compact"
    ends = [live(number, int(events) * number // KILLS) for number in range(1, KILLS)]

    assert {end[-1] if end else "" for end in ends} >= {"", *story[:-1]}


@pytest.mark.parametrize("engine", sorted(ENGINES))
def test_clients_killed_at_random_instants_lose_and_double_nothing(engine: str, tmp_path: Path) -> None:
    factory: LedgerFactory = ENGINES[engine](tmp_path)
    prepare(factory).close()
    random = Random(5)

    def after_some_rounds(reader: int) -> None:
        for _ in range(random.randint(1, 4)):
            os.read(reader, len(b"round\n"))
        # The instant within a round is left to the scheduler and this much of our own work.
        sum(range(random.randint(0, 200_000)))

    for number in range(30):
        run_victim(live_on, factory.opener(), 10_000 * (number + 1), after_some_rounds)
        watcher = factory.open()
        check_consistent(watcher)
        watcher.close()

    check_after_death(factory, factory.open(), [])
    factory.close()
