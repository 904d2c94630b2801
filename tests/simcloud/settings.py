"""How the simulated region behaves. Delays are (shortest, longest) in seconds, drawn evenly by the seed."""

from dataclasses import dataclass

from tests.simcloud.kernel import Kernel

Range = tuple[float, float]


@dataclass(slots=True, kw_only=True)
class Settings:
    """Everything may be set while the region runs, under its lock."""

    region: str = "us-east-1"
    account: str = "123456789012"
    zones: tuple[str, ...] = ("us-east-1a", "us-east-1b", "us-east-1c")
    instance_types: tuple[str, ...] = ("p5.48xlarge", "p4d.24xlarge", "g6e.48xlarge")
    """What is offered in every zone, until `set_capacity` says otherwise for another one."""
    launch_delay_s: Range = (2.0, 4.0)
    """From the launch to `running`."""
    in_service_delay_s: Range = (0.5, 1.0)
    """From `running` to `InService`, hooks apart."""
    shutdown_delay_s: Range = (1.0, 3.0)
    """From `shutting-down` to `terminated`."""
    forget_after_s: float = 3600.0
    """EC2 shows terminated instances for about an hour."""
    reconcile_delay_s: Range = (0.5, 1.5)
    """From a change of its size to what a group does about it."""
    health_check_delay_s: Range = (5.0, 15.0)
    """From the end of an instance to its group's notice of it."""
    retry_delay_s: Range = (15.0, 30.0)
    """From a refused launch of a group to its next attempt."""
    rebalance_check_delay_s: Range = (5.0, 10.0)
    """From an imbalance of zones to what AZRebalance does about it."""
    eks_update_delay_s: Range = (3.0, 6.0)
    eks_join_delay_s: Range = (0.5, 1.0)
    """From the launch hook of a managed group to EKS's word that the node is Ready."""
    eks_drain_s: float = 30.0
    """How long EKS drains a node at most before it lets its instance go (15 min by its documentation)."""
    notice_s: float = 120.0
    describe_lag_s: float = 0.0
    """Describe calls tell of the world up to this much earlier, drawn anew for each call."""
    event_delay_s: Range = (0.0, 0.0)
    """From what happened to its event in a queue; a width of it puts events out of order."""
    event_copies_ratio: float = 0.0
    """Of events, the share delivered twice."""
    token_life_s: float = 8 * 3600.0
    """How long LaunchInstances remembers a client token."""


def draw(kernel: Kernel, between: Range) -> float:
    """One delay."""
    low, high = between
    return low if high <= low else kernel.rng.uniform(low, high)
