"""The folder that workers on the node read, at names that a pod template can spell.

`instance.json` (`scaler.model.instance_file`), `notice.json` (`scaler.model.notice_file`; absent: no notice) and `heartbeat`,
an empty file whose modification time is when everything was last read. Each is replaced as a whole.
"""

import os
from pathlib import Path

from scaler.model.instance_file import InstanceFile, dump_instance
from scaler.model.interruption import InterruptionNotice
from scaler.model.notice_file import dump_notice, parse_notice


class NodeFolder:
    """See the module's docstring. Methods raise `OSError` where the disk fails."""

    def __init__(self, root: Path) -> None:
        self.instance = root / "instance.json"
        self.notice = root / "notice.json"
        self.heartbeat = root / "heartbeat"

    def make(self) -> None:
        """Make the folder."""
        self.notice.parent.mkdir(parents=True, exist_ok=True)

    def read_notice(self) -> InterruptionNotice | None:
        """What an agent before this one wrote; None where that is none."""
        try:
            return parse_notice(self.notice.read_text(errors="replace"))
        except (FileNotFoundError, ValueError):
            return None

    def write_instance(self, instance: InstanceFile) -> None:
        """Say which instance this is."""
        _replace(self.instance, dump_instance(instance))

    def write_notice(self, notice: InterruptionNotice | None) -> None:
        """Say what is known to come, or that nothing is."""
        if notice is None:
            self.notice.unlink(missing_ok=True)
        else:
            _replace(self.notice, dump_notice(notice))

    def beat(self) -> None:
        """Everything has been read."""
        self.heartbeat.touch()


def _replace(path: Path, text: str) -> None:
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(text)
    draft.replace(path)
