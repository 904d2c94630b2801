"""Rows about voluntary disruption: Karpenter, cluster-autoscaler, the Eviction API.

Karpenter's rows are about nodes of its own, cluster-autoscaler's about all others. An annotation that is missing can be added;
one that somebody set to another value is theirs, and only told. None of these stops expiry, interruption, node repair or a
direct delete: that is what the other rows are for. Sources: research "deepep-efa" section 4.3, Karpenter's and
cluster-autoscaler's documentation of these annotations.
"""

from collections.abc import Iterator

from scaler.decide.trainer_checks.case import Case, Found, Row, node_found, pod_found, row
from scaler.model.trainer_facts import Budget, DisruptionAllowance, NodeClaim, NodePool, Source, TrainerNode, TrainerPod
from scaler.model.trainers import (
    AnnotateNode,
    AnnotatePod,
    CheckCode,
    CreateBudget,
    RepairKind,
    Severity,
    SubjectKind,
)

DO_NOT_DISRUPT = "karpenter.sh/do-not-disrupt"
SAFE_TO_EVICT = "cluster-autoscaler.kubernetes.io/safe-to-evict"
SCALE_DOWN_DISABLED = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
NEVER = "Never"
_VOLUNTARY = frozenset({"Underutilized", "Empty", "Drifted"})
"""Reasons that a NodePool's budget may be limited to."""


def _pod_do_not_disrupt(case: Case) -> Iterator[Found]:
    for pod, node in case.placed():
        if node.node_pool:
            yield from _pod_annotation(pod, DO_NOT_DISRUPT, "true", "Karpenter may drain its node")


def _node_do_not_disrupt(case: Case) -> Iterator[Found]:
    for node in case.facts.nodes:
        if node.node_pool:
            yield from _node_annotation(node, DO_NOT_DISRUPT, "Karpenter may disrupt it once its pods allow it")


def _safe_to_evict(case: Case) -> Iterator[Found]:
    for pod, node in case.placed():
        if not node.node_pool:
            yield from _pod_annotation(pod, SAFE_TO_EVICT, "false", "cluster-autoscaler may evict it")


def _scale_down_disabled(case: Case) -> Iterator[Found]:
    for node in case.facts.nodes:
        if not node.node_pool:
            yield from _node_annotation(node, SCALE_DOWN_DISABLED, "cluster-autoscaler may remove it")


def _pod_annotation(pod: TrainerPod, key: str, value: str, danger: str) -> Iterator[Found]:
    found = pod.annotations.get(key)
    if found is None:
        yield Found(
            kind=SubjectKind.POD,
            subject=f"{pod.namespace}/{pod.name}",
            message=f'{danger}: annotate it {key}="{value}", best in its template',
            repair=AnnotatePod(
                namespace=pod.namespace,
                name=pod.name,
                uid=pod.uid,
                resource_version=pod.resource_version,
                annotations=((key, value),),
            ),
            repair_kind=RepairKind.ANNOTATIONS,
        )
    elif found != value:
        yield _other_value(pod_found(pod, ""), key, found, value, danger)


def _node_annotation(node: TrainerNode, key: str, danger: str) -> Iterator[Found]:
    found = node.annotations.get(key)
    if found is None:
        yield Found(
            kind=SubjectKind.NODE,
            subject=node.name,
            message=f'{danger}: annotate it {key}="true"',
            repair=AnnotateNode(
                name=node.name, uid=node.uid, resource_version=node.resource_version, annotations=((key, "true"),)
            ),
            repair_kind=RepairKind.ANNOTATIONS,
        )
    elif found != "true":
        yield _other_value(node_found(node, ""), key, found, "true", danger)


def _other_value(about: Found, key: str, found: str, wanted: str, danger: str) -> Found:
    """Somebody meant something by it: a duration protects for a while, anything else not at all."""
    for_a_while = key == DO_NOT_DISRUPT and any(char.isdigit() for char in found)
    return Found(
        kind=about.kind,
        subject=about.subject,
        message=f'{key} is "{found}", so {danger}{" after that" if for_a_while else ""}: set it to "{wanted}"',
        severity=Severity.WARN if for_a_while else Severity.ALARM,
    )


def _pools(case: Case) -> Iterator[NodePool]:
    names = sorted({node.node_pool for node in case.facts.nodes if node.node_pool})
    return (case.facts.node_pools[name] for name in names if name in case.facts.node_pools)


def _node_pool_budgets(case: Case) -> Iterator[Found]:
    for pool in _pools(case):
        if not any(_forbids_all(allowance) for allowance in pool.allowances):
            yield _pool_found(
                pool.name,
                "no disruption budget of it allows 0 nodes at all times and for all reasons: "
                'give it budgets: [{nodes: "0"}]',
            )


def _forbids_all(allowance: DisruptionAllowance) -> bool:
    all_reasons = not allowance.reasons or allowance.reasons >= _VOLUNTARY
    return allowance.nodes in ("0", "0%") and all_reasons and not allowance.scheduled


def _node_pool_expiry(case: Case) -> Iterator[Found]:
    for pool in _pools(case):
        if pool.expire_after != NEVER:
            after = pool.expire_after or "720h, the default"
            yield _pool_found(pool.name, f"its nodes end after {after}, whatever runs there: set expireAfter: Never")
    for claim in _claims(case):
        if claim.expire_after not in ("", NEVER):
            yield Found(
                kind=SubjectKind.NODE,
                subject=claim.node_name,
                message=f"NodeClaim {claim.name} ends it {claim.expire_after} after its launch, and its NodePool cannot "
                "change that any more: replace the node at a time of your choice",
            )


def _node_pool_consolidation(case: Case) -> Iterator[Found]:
    for pool in _pools(case):
        if pool.consolidate_after != NEVER:
            after = pool.consolidate_after or "0s"
            yield _pool_found(pool.name, f"it consolidates after {after}: set consolidateAfter: Never")


def _node_pool_grace(case: Case) -> Iterator[Found]:
    for pool in _pools(case):
        if pool.termination_grace:
            yield _pool_found(
                pool.name,
                f"terminationGracePeriod {pool.termination_grace} lets drift end pods in spite of do-not-disrupt and "
                "of disruption budgets: remove it",
            )
    for claim in _claims(case):
        if claim.termination_grace:
            yield Found(
                kind=SubjectKind.NODE,
                subject=claim.node_name,
                message=f"NodeClaim {claim.name} has terminationGracePeriod {claim.termination_grace}, which overrides "
                "do-not-disrupt: replace the node at a time of your choice, from a NodePool without it",
            )


def _claims(case: Case) -> Iterator[NodeClaim]:
    names = {node.name for node in case.facts.nodes}
    return (claim for claim in case.facts.claims if claim.node_name in names)


def _pool_found(name: str, message: str) -> Found:
    return Found(kind=SubjectKind.NODE_POOL, subject=name, message=message)


def _disruption_budget(case: Case) -> Iterator[Found]:
    """One finding for the trainer, not one a pod: one budget mends them all."""
    bare: list[TrainerPod] = []
    weak: dict[str, None] = {}
    for pod in case.facts.pods:
        over = [each for each in case.facts.budgets if each.selector is not None and each.selector.selects(pod.labels)]
        if not over:
            bare.append(pod)
        elif not any(_never_allows(budget) for budget in over):
            weak |= dict.fromkeys(budget.name for budget in over)
        if len(over) > 1:
            names = ", ".join(sorted(budget.name for budget in over))
            yield pod_found(
                pod,
                f"several disruption budgets select it ({names}), which the Eviction API answers with an error: "
                "keep one",
                Severity.WARN,
            )
    if weak:
        yield _trainer_found(
            case, f"disruption budget {', '.join(sorted(weak))} lets its pods be evicted: set maxUnavailable: 0"
        )
    if bare:
        yield _no_budget(case, bare, clean=len(bare) == len(case.facts.pods))


def _never_allows(budget: Budget) -> bool:
    if budget.max_unavailable:
        return budget.max_unavailable in ("0", "0%")
    return budget.min_available == "100%"


def _no_budget(case: Case, bare: list[TrainerPod], *, clean: bool) -> Found:
    """Where some pods have a budget already, a second one over all of them would make evictions an error."""
    trainer = case.settings.trainer
    message = f"no disruption budget selects {len(bare)} of its pods: create one with maxUnavailable: 0"
    if not clean:
        return _trainer_found(case, message)
    return Found(
        kind=SubjectKind.TRAINER,
        subject=trainer.name,
        message=message,
        repair=CreateBudget(
            namespace=trainer.namespace,
            name=f"headrace-{trainer.name}",
            trainer=trainer.name,
            match_labels=tuple(sorted(trainer.match_labels.items())),
        ),
        repair_kind=RepairKind.DISRUPTION_BUDGET,
    )


def _trainer_found(case: Case, message: str) -> Found:
    return Found(kind=SubjectKind.TRAINER, subject=case.settings.trainer.name, message=message)


ROWS: tuple[Row, ...] = (
    row(CheckCode.POD_DO_NOT_DISRUPT, _pod_do_not_disrupt, Source.PODS, Source.NODES),
    row(CheckCode.NODE_DO_NOT_DISRUPT, _node_do_not_disrupt, Source.NODES),
    row(CheckCode.NODE_POOL_BUDGETS, _node_pool_budgets, Source.NODES, Source.NODE_POOLS),
    row(CheckCode.NODE_POOL_EXPIRY, _node_pool_expiry, Source.NODES, Source.NODE_POOLS),
    row(CheckCode.NODE_POOL_CONSOLIDATION, _node_pool_consolidation, Source.NODES, Source.NODE_POOLS),
    row(CheckCode.NODE_POOL_GRACE, _node_pool_grace, Source.NODES, Source.NODE_POOLS),
    row(CheckCode.SAFE_TO_EVICT, _safe_to_evict, Source.PODS, Source.NODES),
    row(CheckCode.SCALE_DOWN_DISABLED, _scale_down_disabled, Source.NODES),
    row(CheckCode.DISRUPTION_BUDGET, _disruption_budget, Source.PODS, Source.DISRUPTION_BUDGETS),
)
