"""Any order of calls of several clients keeps every promise: see `tests.ledger.machine`."""

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.ledger.factories import ENGINES
from tests.ledger.machine import LedgerMachine


@pytest.mark.parametrize("engine", sorted(ENGINES))
def test_any_order_of_calls_keeps_every_promise(engine: str) -> None:
    run_state_machine_as_test(
        lambda: LedgerMachine(ENGINES[engine]),
        settings=settings(
            max_examples=120,
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
