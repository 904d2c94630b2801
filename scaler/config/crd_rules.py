"""What the models check across fields, as rules of the API server: each model's `problems`, by the model's name.

A rule that needs a whole fleet stands with `Spec` and names the stage in its message, as in
`spec.stages[rollout].pools`. What is not here, the controller alone can say (by condition `Accepted`):
relative paths, and what is in files. `tests/config/test_crd_on_api_server.py` has the list.
"""

from collections.abc import Mapping

from policies.registry import SIZING
from scaler.config.cel import FORBIDDEN, REQUIRED, Of, Rule, at_most
from scaler.config.policy_models import policy_model
from scaler.config.scalars import NAME_PATTERN
from scaler.config.schema import Job, Spec
from scaler.config.stage import Drain, GuardRails, LedgerSignals, Pool, StageName
from scaler.config.trainers import LABEL_KEY

_RAILS, _DRAIN, _JOB, _POOL, _SPEC = Of(GuardRails), Of(Drain), Of(Job), Of(Pool), Of(Spec)


def _policy(name: str) -> Of:
    return Of(policy_model(name, SIZING[name].params))


def _price(pool: str) -> str:
    """USD an hour of a pool's cheapest replica."""
    nodes = Of(Pool, pool).number("nodes_per_replica")
    return f"([1.0e9] + {pool}.offerings.map(o, double(o.priceUsdPerH))).min() * double({nodes})"


def _floor_cost(stage: str) -> str:
    """What a stage's floor costs at least: its cheapest pools filled first, each to its bound.

    As a linear programme's dual, which is one pass for each price: the highest over prices a of
    a * floor - sum over pools of size * max(0, a - price). `[x].map(t, ...)[0]` names x.
    """
    pairs = f"{stage}.pools.map(p, [{_price('p')}, double({Of(Pool, 'p').number('max_replicas')})])"
    saved = "t.map(b, b[1] * [0.0, a[0] - b[0]].max()).sum()"
    return f"[{pairs}].map(t, ([0.0] + t.map(a, a[0] * double({stage}.guardRails.floor) - {saved})).max())[0]"


def _each_stage(
    bad: str, below: str, message: str, names: tuple[StageName, ...] = tuple(StageName)
) -> tuple[Rule, ...]:
    """No stage `s` is `bad`: a rule for each name that a stage may have, so that the message can tell it."""
    return tuple(
        Rule(
            rule=f"!self.stages.exists(s, s.name == '{name}' && {bad})",
            message=f"spec.stages[{name}]{below}: {message}",
            field="stages",
        )
        for name in names
    )


def _each_pool(bad: str, below: str, message: str) -> tuple[Rule, ...]:
    """No pool `p` of a stage `s` is `bad`."""
    return _each_stage(f"s.pools.exists(p, {bad})", f".pools{below}", message)


_SIGNAL_AGE = f"(has(s.signals) ? {Of(LedgerSignals, 's.signals').seconds('max_age_s')} : 30.0)"

RULES: Mapping[str, tuple[Rule, ...]] = {
    "RolloutFleet": (
        Rule(
            rule=f"self.metadata.name.matches('{NAME_PATTERN}')",
            message="metadata.name: use up to 63 lower-case letters, digits and inner dashes",
        ),
    ),
    "Spec": (
        Rule(
            rule="self.stages.exists(s, s.name == 'rollout')",
            message="there is no stage rollout (add it: a fleet always has that one)",
            field="stages",
            reason=REQUIRED,
        ),
        *_each_stage(
            f"!({at_most(_SPEC.seconds('interval_s'), _SIGNAL_AGE)})",
            ".signals.maxAge",
            "shorter than the interval of the loop, so every signal would be stale (raise it, or lower spec.interval)",
        ),
        *_each_stage(
            "(!has(s.signals) || !has(s.signals.type) || s.signals.type == 'ledger')",
            ".signals",
            "the ledger of the job holds the queue of stage rollout only (leave this stage out)",
            (StageName.REWARD, StageName.ENVIRONMENT),
        ),
        *_each_stage(
            "has(s.guardRails.spendCapUsdPerH) && double(s.guardRails.spendCapUsdPerH) > double(self.spendCapUsdPerH)",
            ".guardRails.spendCapUsdPerH",
            "over the cap of the fleet (lower it, leave it out, or raise spec.spendCapUsdPerH)",
        ),
        Rule(
            rule=at_most(f"self.stages.map(s, {_floor_cost('s')}).sum()", "double(self.spendCapUsdPerH)"),
            message="does not pay for the floor (raise it or lower a stage's guardRails.floor)",
            field="spendCapUsdPerH",
        ),
        *_each_pool(
            "self.stages.exists(t, t.name != s.name && t.pools.exists(q, q.name == p.name))",
            "",
            "one name is there in two stages (give each pool a name of its own)",
        ),
        *_each_pool(
            f"!({at_most(_SPEC.seconds('interval_s'), Of(Pool, 'p').seconds('launch_timeout_s'))})",
            ".launchTimeout",
            "shorter than the interval of the loop, so no launch would live to be seen (raise it, or lower spec.interval)",
        ),
        Rule(
            rule="self.ledger.type != 'sqlite' || self.stages.all(s, s.pools.all(p, p.provider.type == 'local'))",
            message="SQLite is refused in a cluster (use a ledger of type valkey)",
            field="ledger",
            reason=FORBIDDEN,
        ),
    ),
    "Job": (
        Rule(
            rule=at_most(_JOB.seconds("backoff_initial_s"), _JOB.seconds("backoff_max_s")),
            message="the first wait is longer than the longest (raise backoffMax, or lower this one)",
            field="backoffInitial",
        ),
    ),
    "SqliteLedger": (
        Rule(
            rule="!has(self.path) || !self.path.matches('[?#%]')",
            message="choose a path without ?, # and %",
            field="path",
        ),
    ),
    "ValkeyLedger": (
        Rule(
            rule="has(self.url) != has(self.urlFile)",
            message="exactly one of url and urlFile is needed (set one of them)",
        ),
        Rule(
            rule="!has(self.url) || self.url.matches('^valkeys?://([^/?#]*@)?([^]/?#@:[]+|[[][^]/?#@[]+[]])(:[0-9]*)?(/[0-9]*)?([?#].*)?$')",
            message="no address of a Valkey store (write it like valkey://host:6379/0)",
            field="url",
        ),
        Rule(
            rule="!has(self.url) || !self.url.matches('^[a-z]+://[^/?#@]*:[^/?#]+@')",
            message="a password does not belong here (put the whole URL into a file and name it in urlFile)",
            field="url",
            reason=FORBIDDEN,
        ),
    ),
    "Stage": (
        Rule(
            rule=f"self.guardRails.floor <= self.pools.map(p, {Of(Pool, 'p').number('max_replicas')}).sum()",
            message="guardRails.floor does not fit into the pools (raise a pool's maxReplicas or lower floor)",
            field="guardRails.floor",
        ),
        Rule(
            rule="!has(self.guardRails.spendCapUsdPerH) || "
            + at_most(_floor_cost("self"), "double(self.guardRails.spendCapUsdPerH)"),
            message="does not pay for the floor (raise it or lower floor)",
            field="guardRails.spendCapUsdPerH",
        ),
    ),
    "GuardRails": (
        Rule(
            rule="self.floor <= self.ceiling", message="over the ceiling (lower floor or raise ceiling)", field="floor"
        ),
        Rule(
            rule=at_most(_RAILS.seconds("cooldown_up_s"), _RAILS.seconds("cooldown_down_s")),
            message="shorter than cooldownUp, so the fleet would fall faster than it rises (raise it, or lower cooldownUp)",
            field="cooldownDown",
        ),
    ),
    "Drain": (
        Rule(
            rule=f"{_DRAIN.seconds('margin_s')} < {_DRAIN.seconds('voluntary_deadline_s')}",
            message="leaves nothing of voluntaryDeadline to drain in (lower margin or raise voluntaryDeadline)",
            field="margin",
        ),
    ),
    "Pool": (
        Rule(
            rule=at_most(_POOL.seconds("refusal_backoff_initial_s"), _POOL.seconds("refusal_backoff_max_s")),
            message="the first wait is longer than the longest (raise refusalBackoffMax, or lower this one)",
            field="refusalBackoffInitial",
        ),
    ),
    "LocalProvider": (
        Rule(
            rule="!has(self.env) || self.env.all(k, k != '' && !k.contains('='))",
            message="cannot name an environment variable (use letters, digits and underscores)",
            field="env",
        ),
    ),
    "Labels": (
        Rule(
            rule=f"self.matchLabels.all(k, k.matches('{LABEL_KEY}'))",
            message="no label (write it like app or example.com/app)",
            field="matchLabels",
        ),
    ),
    "Trainer": (
        Rule(
            rule="!has(self.hotSpares) || self.hotSpares == 0 || has(self.nodes)",
            message="nothing tells which nodes stand by for this trainer (set nodes.matchLabels too)",
            field="hotSpares",
        ),
    ),
    "KarpenterProvider": (
        Rule(
            rule="!has(self.workerSet) || self.workerSet.type != 'daemon_set'",
            message="workerSet.type: a DaemonSet makes Karpenter launch nothing: its pods come after nodes"
            " (use a deployment, a leader_worker_set or a ray_cluster)",
            field="workerSet",
            reason=FORBIDDEN,
        ),
    ),
    "BufferBandPolicy": (
        Rule(
            rule=f"{_policy('buffer_band').number('low_mark')} < {_policy('buffer_band').number('high_mark')}",
            message="must be below highMark",
            field="lowMark",
        ),
    ),
    "RateMatchPolicy": (
        Rule(
            rule=f"{_policy('rate_match').number('target_depth_steps')} <= {_policy('rate_match').number('max_depth_steps')}",
            message="must not be above maxDepthSteps",
            field="targetDepthSteps",
        ),
    ),
}
