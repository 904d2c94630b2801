"""Users of a shared server: what each role may touch, as rules for `ACL SETUSER`.

A function runs with its caller's rights, key by key. So a worker can neither change the job's rules nor open, change or
acknowledge a batch, whatever it sends; a trainer and a controller can do what they call for. No role reaches another
job's keys, or a command that the ledger does not use.
"""

from collections.abc import Iterable

_LINK = ("info", "waitaof", "fcall", "function|load", "ping", "select", "auth")
_READ = ("time", "exists", "get", "hget", "hmget", "hgetall", "hexists", "hkeys", "hlen", "hscan", "lrange")
_READ_ORDERED = ("zrange", "zrangebyscore", "zcard", "zcount", "zscore", "xrange")
_WRITE = (
    "set",
    "hset",
    "hdel",
    "hincrby",
    "zadd",
    "zrem",
    "zpopmin",
    "xadd",
    "xtrim",
    "append",
    "rpush",
    "del",
    "unlink",
)
_RULES_KEY = "c"
_BATCH_KEYS = ("b", "n")
_OTHER_KEYS = (*"adefgiklmopqrstuvxyz", "h:*", "j:*", "w:*")


def rules_of(job: str) -> dict[str, str]:
    """Role (worker, trainer, controller) -> rules; add `on` and a password.

    Workers cannot write the job's rules; only the trainer can write batches. Keys are named `headrace:{job}:<letter>`.
    """
    prefix = f"headrace:{{{job}}}:"
    common = " ".join(f"+{command}" for command in (*_LINK, *_READ, *_READ_ORDERED, *_WRITE))
    keys = {
        "worker": [f"%R~{prefix}{_RULES_KEY}", *_both(prefix, ("", *_OTHER_KEYS))],
        "trainer": list(_both(prefix, ("", _RULES_KEY, *_BATCH_KEYS, *_OTHER_KEYS))),
        "controller": [
            *(f"%R~{prefix}{name}" for name in _BATCH_KEYS),
            *_both(prefix, ("", _RULES_KEY, *_OTHER_KEYS)),
        ],
    }
    return {role: f"resetkeys -@all {common} {' '.join(patterns)}" for role, patterns in keys.items()}


def _both(prefix: str, names: Iterable[str]) -> Iterable[str]:
    return (f"~{prefix}{name}" for name in names)
