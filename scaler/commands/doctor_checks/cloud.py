"""AWS: credentials, clock and the queue of notices. Nothing is received from the queue: that would hide messages from others."""

from collections.abc import Mapping, Sequence
from typing import Any

from scaler.aws.contract import AwsError, AwsFault
from scaler.commands.doctor_checks.base import Line, fail, not_looked, ok, warn
from scaler.commands.doctor_checks.cluster_world import ClusterWorld
from scaler.config.providers import AutoScalingGroupProvider, EksNodeGroupProvider
from scaler.interruptions.queue.wire import SqsQueue
from scaler.interruptions.sqs import QueueRefused, check_owner
from scaler.kube.contract import KubeError
from scaler.runtime.cluster.daemon import cluster_uid

_MOST_AHEAD_S = 30.0
"""AWS refuses what was signed five minutes off; deadlines are reckoned on its clock, whatever ours says."""
_REMEDIES: Mapping[AwsFault, str] = {
    AwsFault.AUTHORISATION: "give the pod's role the policy of deploy/iam, and see that its credentials reach the pod",
    AwsFault.UNREACHABLE: "see the network: a VPC endpoint or a way out to the region",
    AwsFault.CONFIGURATION: "see spec.aws.region of the controller's settings",
}


async def aws(world: ClusterWorld) -> Sequence[Line]:
    """One call that lists, and the Date of its answer."""
    about, client = "AWS", world.access.aws
    if client is None:
        if not _on_ec2(world):
            return []
        return [not_looked(about, "no region is known", "-f controller.yaml, or --region")]
    try:
        await client.call("autoscaling", "DescribeAutoScalingGroups", MaxRecords=1)
    except AwsError as error:
        return [fail(about, str(error), _REMEDIES.get(error.fault, "see what it says")), *_clock(client.ahead_s())]
    return [ok(about, "answers, and takes our credentials"), *_clock(client.ahead_s())]


def _on_ec2(world: ClusterWorld) -> bool:
    stages = world.fleet.spec.stages if world.fleet is not None else ()
    providers = [pool.provider for stage in stages for pool in stage.pools]
    return any(isinstance(each, AutoScalingGroupProvider | EksNodeGroupProvider) for each in providers)


def _clock(ahead_s: float | None) -> list[Line]:
    about = "clock of AWS"
    if ahead_s is None:
        return []
    found = f"{ahead_s:+.1f} s from ours"
    return [warn(about, found, "set the clocks (chrony)") if abs(ahead_s) > _MOST_AHEAD_S else ok(about, found)]


async def queue(world: ClusterWorld) -> Sequence[Line]:
    """Whose it is, by its tag; its age is the controller's to say."""
    settings, client = world.access.settings, world.access.aws
    named = settings.spec.notices.queue if settings is not None else None
    if named is None:
        return []
    about = "queue of notices"
    if client is None:
        return [not_looked(about, "no region is known", "set spec.aws.region of the controller's settings")]
    try:
        await check_owner(SqsQueue(client, named.url), named.url, await cluster_uid(world.kube))
    except QueueRefused as error:
        return [fail(about, str(error), "tag it with this cluster's UID: deploy/eventbridge/README.md")]
    except AwsError as error:
        return [fail(about, str(error), "see that it is there, and that the role may read it: deploy/iam")]
    except KubeError as error:
        return [not_looked(about, f"the cluster's UID is not known: {error}", "look with more rights")]
    return [ok(about, f"{named.url} answers, and is this cluster's")]


async def sources(world: ClusterWorld) -> Sequence[Line]:
    """Each source of notices, as the controller of this pod tells where it leads."""
    fleet = _told(world).get("sources", {}).get("notices", {})
    return [_source(name, health) for name, health in sorted(fleet.items())]


def _told(world: ClusterWorld) -> Mapping[str, Any]:
    heard = world.access.heard
    fleets = (heard.status or {}).get("fleets", {}) if heard is not None else {}
    found: Mapping[str, Any] = fleets.get(f"{world.access.namespace}.{world.access.name}", {})
    return found


def _source(name: str, health: Mapping[str, Any]) -> Line:
    about = f"notices {name}"
    age = health.get("queue_age_s")
    age_text = "" if age is None else f", its oldest message is {age:.0f} s old"
    found = f"{health['received']} received, {health['malformed']} malformed{age_text}"
    if health["error"]:
        return fail(about, f"{health['error']}; {found}", "deploy/runbooks/notice-source-unhealthy.md")
    if health["answered_at_s"] is None:
        return warn(about, "has not answered yet", "wait a minute; then see the controller's log")
    return ok(about, found)
