"""Node agents: who reads instance metadata where the fleet's workers run."""

from collections.abc import Sequence

from scaler.commands.doctor_checks.base import Line, not_looked, ok, warn
from scaler.commands.doctor_checks.cluster_world import ClusterWorld
from scaler.kube.contract import PODS, Denied, KubeError
from scaler.kube.facts import FLEET_LABEL
from scaler.kube.reading import pod_facts

_COMPONENT = "app.kubernetes.io/component=node-agent"
"""As the chart labels their pods."""
_ABOUT = "node agents"


async def node_agents(world: ClusterWorld) -> Sequence[Line]:
    """One that is ready on each of the fleet's nodes."""
    place = world.election.namespace
    look = f"kubectl -n {place} get pods -l {_COMPONENT} -o wide"
    try:
        listed = await world.kube.list(PODS, namespace=place, label_selector=_COMPONENT)
    except Denied:
        return [not_looked(_ABOUT, f"pods of {place} may not be listed", look)]
    except KubeError as error:
        return [not_looked(_ABOUT, str(error), look)]
    if trouble := await world.listed():
        return [not_looked(_ABOUT, trouble, look)]
    agents = [facts for body in listed.items if (facts := pod_facts(body)) is not None]
    if not agents:
        remedy = (
            "nodeAgent.enabled in the chart's values; without it workers hear of notices by the ledger and SIGTERM only"
        )
        return [warn(_ABOUT, f"none in {place}", remedy)]
    served = {agent.node_name for agent in agents if agent.ready}
    key = f"{world.access.namespace}.{world.access.name}"
    nodes = {node.name for node in world.nodes.all() if node.labels.get(FLEET_LABEL) == key}
    bare = sorted(nodes - served)
    if bare:
        remedy = "see nodeAgent.nodeSelector and nodeAgent.tolerations in the chart's values"
        return [warn(_ABOUT, f"none is ready on {len(bare)} of {len(nodes)} nodes, as {bare[0]}", remedy)]
    return [ok(_ABOUT, f"ready on all {len(nodes)} nodes of the fleet")]
