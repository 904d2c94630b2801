"""A valid fleet becomes the plain facts, with nothing lost on the way."""

import os
from pathlib import Path

import pytest
from pydantic import ValidationError

from policies import buffer_band, cheapest_available, rate_match
from scaler.config import convert
from scaler.config.faults import ConfigError
from scaler.config.loader import parse_fleets
from scaler.config.schema import RolloutFleet
from scaler.model.capacity import Billing, CapacityType, Offering
from scaler.model.job import JobSettings, OnStale
from scaler.model.spec import DrainSpec, FleetSpec, GuardRails, PolicySpec, PoolSpec, StageSpec
from tests.builders.fleet_yaml import (
    SOURCE,
    a_fleet,
    a_local_provider,
    a_pool,
    a_stage,
    an_offering,
    text_of,
    the_fleet,
)


def test_the_least_fleet_has_the_models_own_defaults() -> None:
    offering = Offering(instance_type="process", zone="here", capacity_type=CapacityType.SPOT, price_usd_per_h=1.0)
    stage = StageSpec(
        name="rollout",
        sizing=PolicySpec(name="rate_match", params=rate_match.Params()),
        placement=PolicySpec(name="cheapest_available", params=cheapest_available.Params()),
        guard_rails=GuardRails(min_replicas=1, max_replicas=4, max_spend_usd_per_h=10.0),
        pools=(PoolSpec(name="spot", provider="local", offerings=(offering,)),),
    )
    # dry_run differs from the model's default on purpose: a new fleet changes nothing until it is told to.
    assert convert.to_spec(the_fleet()) == FleetSpec(
        name="demo", stages=(stage,), dry_run=True, max_spend_usd_per_h=10.0
    )


def test_the_least_job_has_the_models_own_defaults() -> None:
    assert convert.job_settings(the_fleet()) == JobSettings(group_size=8, batch_groups=4)


def a_full_fleet() -> RolloutFleet:
    offering = an_offering(
        capacityType="capacity-block",
        priceUsdPerH="98.32",
        billing={"minimum": "0s", "refundIfInterruptedWithin": "1h"},
    )
    pool = a_pool(
        provider=a_local_provider(stateDir="/var/cloud", env={"A": "1"}, terminationGrace="1500ms"),
        offerings=[offering],
        maxReplicas=3,
        nodesPerReplica=2,
        launchTimeout="20m",
        refusalBackoffInitial="1s",
        refusalBackoffMax="1m30s",
    )
    stage = a_stage(
        policy={"type": "buffer_band", "lowMark": 2, "highMark": 3.5, "marksIn": "samples", "settle": "2m"},
        placement={"type": "cheapest_available", "reclaiming": "1h"},
        signals={"type": "ledger", "maxAge": "45s"},
        drain={"voluntaryDeadline": "1m", "margin": "5s", "reapAfter": "10m"},
        pools=[pool],
        guardRails={
            "floor": 0,
            "ceiling": 3,
            "spendCapUsdPerH": "400.5",
            "maxStepUp": 2,
            "maxStepDown": 1,
            "cooldownUp": "1s",
            "cooldownDown": "1m",
            "disruptionBudget": "12.5%",
            "lowerAfterFresh": "0s",
        },
    )
    job = {
        "name": "job", "groupSize": 2, "batchGroups": 3, "batchesPerVersion": 4, "maxStaleness": 0, "onStale": "requeue",
        "maxConcurrent": 5, "unitFailureLimit": 6, "groupRedrawLimit": 0, "backoffInitial": "2s", "backoffMax": "3s",
        "historyEvents": 7,
    }  # fmt: skip
    document = a_fleet(
        spendCapUsdPerH="500", interval="20s", paused=True, dryRun=False, job=job, stages=[stage],
        http={"listen": "[::1]:0"}, weightsDir="../weights",
    )  # fmt: skip
    document["metadata"]["labels"] = {"team": "rl"}
    return the_fleet(document)


def test_every_value_arrives() -> None:
    offering = Offering(
        instance_type="process",
        zone="here",
        capacity_type=CapacityType.CAPACITY_BLOCK,
        price_usd_per_h=98.32,
        billing=Billing(minimum_s=0.0, refund_if_interrupted_within_s=3600.0),
    )
    pool = PoolSpec(
        name="spot",
        provider="local",
        offerings=(offering,),
        max_replicas=3,
        nodes_per_replica=2,
        launch_timeout_s=1200.0,
        refusal_backoff_initial_s=1.0,
        refusal_backoff_max_s=90.0,
    )
    rails = GuardRails(
        min_replicas=0,
        max_replicas=3,
        max_spend_usd_per_h=400.5,
        max_step_up=2,
        max_step_down=1,
        cooldown_up_s=1.0,
        cooldown_down_s=60.0,
        disruption_budget_ratio=0.125,
        lower_after_fresh_s=0.0,
        signal_max_age_s=45.0,
    )
    band = buffer_band.Params(low_mark=2, high_mark=3.5, marks_in=buffer_band.MarkUnit.SAMPLES, settle_s=120.0)
    stage = StageSpec(
        name="rollout",
        sizing=PolicySpec(name="buffer_band", params=band),
        placement=PolicySpec(name="cheapest_available", params=cheapest_available.Params(reclaiming_s=3600.0)),
        guard_rails=rails,
        pools=(pool,),
        drain=DrainSpec(voluntary_deadline_s=60.0, margin_s=5.0, reap_after_s=600.0),
    )
    assert convert.to_spec(a_full_fleet()) == FleetSpec(
        name="demo", stages=(stage,), interval_s=20.0, paused=True, max_spend_usd_per_h=500.0, labels={"team": "rl"}
    )


def test_every_rule_of_the_job_arrives() -> None:
    fleet = a_full_fleet()
    assert fleet.job_name == "job"
    assert convert.job_settings(fleet) == JobSettings(
        group_size=2,
        batch_groups=3,
        batches_per_version=4,
        max_staleness=0,
        on_stale=OnStale.REQUEUE,
        max_concurrent=5,
        unit_failure_limit=6,
        group_redraw_limit=0,
        backoff_initial_s=2.0,
        backoff_max_s=3.0,
        history_events=7,
    )


def test_provider_settings_by_pool() -> None:
    (provider,) = convert.local_providers(a_full_fleet()).values()
    assert provider.state_dir == "/var/cloud"
    assert provider.command == ("worker", "--ledger={ledger}")
    assert (provider.env, provider.termination_grace_s) == ({"A": "1"}, 1.5)


def test_what_a_fleet_knows_of_placeholders() -> None:
    assert convert.placeholder_values(a_full_fleet()) == {
        "ledger": "sqlite:///etc/headrace/ledger.db",
        "job": "job",
        "weights": "/etc/weights",
    }
    assert "weights" not in convert.placeholder_values(the_fleet())


@pytest.mark.parametrize(
    ("listen", "address"),
    [("127.0.0.1:9090", ("127.0.0.1", 9090)), ("[::1]:0", ("::1", 0)), ("my-host.local:1", ("my-host.local", 1))],
)
def test_the_address_to_listen_on(listen: str, address: tuple[str, int]) -> None:
    assert convert.http_address(the_fleet(a_fleet(http={"listen": listen}))) == address


def test_relative_paths_start_from_the_files_folder_whatever_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (fleet,) = parse_fleets(text_of(a_fleet()), Path("conf/fleet.yaml"))
    assert convert.ledger_url(fleet) == f"sqlite://{tmp_path}/conf/ledger.db"


def test_a_stores_url_with_a_password_comes_from_its_file(tmp_path: Path) -> None:
    secret = tmp_path / "url"
    fleet = the_fleet(a_fleet(ledger={"type": "valkey", "urlFile": str(secret)}))
    with pytest.raises(ConfigError, match="holds no ledger URL that can be read"):
        convert.ledger_url(fleet)
    secret.write_text("valkeys://worker:secret@store:6379/0\n")
    assert convert.ledger_url(fleet) == "valkeys://worker:secret@store:6379/0"


def test_a_stores_url_is_not_waited_for_at_a_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "url"
    os.mkfifo(pipe)
    with pytest.raises(ConfigError, match="holds no ledger URL that can be read"):
        convert.ledger_url(the_fleet(a_fleet(ledger={"type": "valkey", "urlFile": str(pipe)})))


def test_a_stores_url_without_a_password() -> None:
    url = "valkey://127.0.0.1:6379/3"
    assert convert.ledger_url(the_fleet(a_fleet(ledger={"type": "valkey", "url": url}))) == url


@pytest.mark.parametrize("fleet", [the_fleet(), a_full_fleet()], ids=["least", "full"])
def test_what_is_written_back_reads_the_same(fleet: RolloutFleet) -> None:
    again = fleet.model_dump(mode="json", by_alias=True)
    assert parse_fleets(text_of(again), SOURCE) == [fleet]


def test_a_fleet_cannot_be_changed() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        the_fleet().spec.paused = True  # type: ignore[misc]


def test_several_stages_become_several_stages() -> None:
    fleet = the_fleet()
    (rollout,) = fleet.spec.stages
    reward = rollout.model_copy(update={"name": type(rollout.name).REWARD})
    both = fleet.model_copy(update={"spec": fleet.spec.model_copy(update={"stages": (rollout, reward)})})
    assert [stage.name for stage in convert.to_spec(both).stages] == ["rollout", "reward"]
