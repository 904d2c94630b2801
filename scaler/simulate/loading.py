"""From a Scenario's YAML, a policy and a stretch of capacity to a `Scenario`.

* A name without a folder is a shipped scenario (`scaler/simulate/scenarios`), anything else a file.
* With a trace, each of its series becomes one spot offering in pool `spot`, whatever its zone is called: the zone's price is
  the one named for it, or for what its name starts with, or the default. Counts are scaled by the trace's format and rounded
  down. Without one, `generated` gives the zones; its counts are replicas.
* On-demand is one offering with constant capacity, its quota, in pool `on-demand`; blocks are in pool `capacity-block`.

Errors: `ConfigError` for YAML, `TraceError` for traces and stretches that they do not have; each line says what to do.
"""

import dataclasses
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from scaler.config.convert import drain_of, rails_of, settings_of
from scaler.config.documents import validated
from scaler.config.faults import ConfigError, Fault
from scaler.config.json_schema import json_schema_of
from scaler.config.yaml_text import read_bytes, read_documents
from scaler.model.spec import FleetSpec, GuardRails, PolicySpec, PoolSpec, StageSpec
from scaler.simulate.generate import generate
from scaler.simulate.lengths import lengths_with_mean
from scaler.simulate.offerings import hazard_of, offering_models, with_scale
from scaler.simulate.policy_file import PolicyChoice
from scaler.simulate.scenario import (
    GenerationModel,
    LaunchModel,
    NoticeModel,
    OfferingModel,
    Scenario,
    ServiceStage,
    TrainerModel,
)
from scaler.simulate.scenario_yaml import ScenarioDocument, Spec
from scaler.simulate.services import service_offerings, service_spec
from scaler.traces.registry import load_trace
from scaler.traces.trace import CapacityTrace, TraceError

SHIPPED = resources.files("scaler.simulate") / "scenarios"
PROVIDER = "simulated"
_SIGNAL_AGE_INTERVALS = 3
_EXAMPLE = "a Scenario; `headrace scenarios` lists shipped ones to start from"
