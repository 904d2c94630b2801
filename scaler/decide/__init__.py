"""Pure decisions: `decide(snapshot, spec, memory) -> Plan`. All judgement is here and in `policies`; no I/O, no clock."""

from scaler.decide.engine import decide

__all__ = ["decide"]
