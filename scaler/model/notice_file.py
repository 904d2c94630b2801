"""The notice file: how a notice reaches a worker on its own node, as instance metadata would.

One JSON object, written atomically by whoever plays the cloud (or by the node agent that reads instance metadata):
`{"instance_id": str, "kind": str, "noticed_at_s": float, "deadline_s": float | null}`.
"""

import json

from scaler.model.interruption import InterruptionNotice, NoticeKind


def dump_notice(notice: InterruptionNotice) -> str:
    """The file's text."""
    return json.dumps(
        {
            "instance_id": notice.instance_id,
            "kind": notice.kind.value,
            "noticed_at_s": notice.noticed_at_s,
            "deadline_s": notice.deadline_s,
        }
    )


def parse_notice(text: str) -> InterruptionNotice:
    """The notice in the file's text; `ValueError` says what is wrong with it."""
    try:
        raw = json.loads(text)
        deadline = raw["deadline_s"]
        return InterruptionNotice(
            instance_id=str(raw["instance_id"]),
            kind=NoticeKind(raw["kind"]),
            noticed_at_s=float(raw["noticed_at_s"]),
            deadline_s=None if deadline is None else float(deadline),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"no interruption notice: {error!r} in {text[:200]!r}") from error
