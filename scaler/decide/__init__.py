"""The pure engine: decide(snapshot, spec, memory) -> Plan."""
