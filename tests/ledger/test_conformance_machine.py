"""Any order of calls of several clients keeps every promise: see `tests.ledger.machine`."""

from typing import cast

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from tests.ledger.factories import ENGINES
from tests.ledger.machine import LedgerMachine


@pytest.mark.parametrize("engine", sorted(ENGINES))
def test_any_order_of_calls_keeps_every_promise(engine: str) -> None:
    def machine() -> RuleBasedStateMachine:
        return LedgerMachine(ENGINES[engine])

    run_state_machine_as_test(
        # Any maker of machines will do; the annotation asks for the class.
        cast("type[RuleBasedStateMachine]", machine),
        settings=settings(
            max_examples=120,
            stateful_step_count=40,
            suppress_health_check=list(HealthCheck),
        ),
    )
