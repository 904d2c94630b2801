"""The notice file as the worker reads it: by when this instance goes, if it says so.

Every kind that binds counts, whoever takes the instance: Spot, the end of a reservation, a scheduled change, a lifecycle hook,
an owner of the node. A rebalance recommendation is a hint for the controller. A notice that names no deadline goes 120 s
after it was noticed, as EC2's do.
"""

from pathlib import Path

from scaler.files import FEW_BYTES, read_regular
from scaler.model.interruption import BINDING
from scaler.model.notice_file import parse_notice

_EC2_NOTICE_S = 120.0


def read_deadline_s(path: Path, instance_id: str) -> float | None:
    """UTC seconds at which this instance goes, or None while nothing says so.

    Raises:
        ValueError: the file holds no notice.
    """
    try:
        text = read_regular(path, FEW_BYTES).decode()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ValueError(f"notice file: {error}") from error
    notice = parse_notice(text)
    if notice.instance_id != instance_id or notice.kind not in BINDING:
        return None
    return notice.noticed_at_s + _EC2_NOTICE_S if notice.deadline_s is None else notice.deadline_s
