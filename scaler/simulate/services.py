"""Reward and environment stages of a scenario: a fixed number of replicas on demand, each stage with a pool of its own."""

from policies import cheapest_available, static
from scaler.model.capacity import CapacityType, Offering
from scaler.model.spec import GuardRails, PolicySpec, PoolSpec, StageSpec
from scaler.simulate.offerings import ANY_ZONE, constant
from scaler.simulate.scenario import OfferingModel
from scaler.simulate.scenario_parts import Service


def service_offering(service: Service) -> OfferingModel:
    """Where its replicas come from; its pool is named like the stage."""
    return OfferingModel(
        pool=service.name,
        offering=Offering(
            instance_type=service.instance_type,
            zone=ANY_ZONE,
            capacity_type=CapacityType.ON_DEMAND,
            price_usd_per_h=service.price_usd_per_h,
        ),
        capacity=constant(service.name, service.replicas),
        reclaims=False,
    )


def service_spec(service: Service, pool: PoolSpec, rails: GuardRails) -> StageSpec:
    """The stage as the engine sees it: a fixed size."""
    return StageSpec(
        name=service.name,
        sizing=PolicySpec(name="static", params=static.Params(replicas=service.replicas)),
        placement=PolicySpec(name="cheapest_available", params=cheapest_available.Params()),
        guard_rails=rails,
        pools=(pool,),
    )
