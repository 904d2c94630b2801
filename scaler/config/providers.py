"""Who acts on a capacity pool, and its own settings. A new provider is one model here and one arm of `Provider`."""

import string
from typing import Annotated, ClassVar, Literal, TypeAlias

from pydantic import AfterValidator, Field

from scaler.config.faults import shown
from scaler.config.scalars import Duration, FilePath, PlainText
from scaler.config.yaml_model import RESTART, YamlModel, refusal

PLACEHOLDERS = frozenset(
    {"ledger", "job", "worker", "replicaId", "instanceId", "noticeFile", "tokenCounter", "weights", "offering"}
)
"""What a local worker's command may ask for; the local actor fills it in at launch. A literal brace is `{{` or `}}`."""


def placeholders(word: str) -> tuple[str, ...]:
    """Names in braces in one word of a command. `ValueError` where braces do not match or hold more than a name."""
    found = []
    for _, name, form, conversion in string.Formatter().parse(word):
        if name is not None:
            if form or conversion:
                raise ValueError(f"{shown(word)} holds more than a name in its braces")
            found.append(name)
    return tuple(found)


def _command_word(word: str) -> str:
    try:
        names = placeholders(word)
    except ValueError as error:
        raise refusal(f"{shown(word)} cannot be read: {error}", "write a literal brace twice") from None
    for name in names:
        if name not in PLACEHOLDERS:
            known = ", ".join(f"{{{known}}}" for known in sorted(PLACEHOLDERS))
            raise refusal(f"unknown placeholder {{{name}}}", f"known: {known}; write a literal brace twice")
    return word


def _variable(name: str) -> str:
    if not name or "=" in name or "\0" in name:
        raise refusal(f"{shown(name)} cannot name an environment variable", "use letters, digits and underscores")
    return name


def _value(value: str) -> str:
    if "\0" in value:
        raise refusal(f"{shown(value)} cannot be the value of an environment variable", "leave the NUL out")
    return value


CommandWord = Annotated[PlainText, AfterValidator(_command_word)]
Environment = dict[Annotated[str, AfterValidator(_variable)], Annotated[str, AfterValidator(_value)]]


class ProviderModel(YamlModel):
    """Base of all providers in the YAML."""

    type: str
    one_machine: ClassVar[bool] = False
    """Workers run where the controller runs: only then may the ledger be a file."""

    @property
    def place(self) -> str:
        """Where its instances live: two pools of one name cannot share it."""
        return self.type

    @property
    def asks_for(self) -> frozenset[str]:
        """Placeholders that its settings use."""
        return frozenset()


class LocalProvider(ProviderModel):
    """Processes on this machine: an instance is a process group."""

    one_machine: ClassVar[bool] = True
    type: Annotated[Literal["local"], Field(json_schema_extra=RESTART)]
    """Who acts on the pool."""
    state_dir: Annotated[FilePath, Field(json_schema_extra=RESTART)]
    """Folder of instance records, notices, counters and logs; a new controller adopts what it finds there."""
    command: Annotated[tuple[CommandWord, ...], Field(min_length=1)]
    """Program and arguments of one worker, run without a shell. May hold {ledger}, {job}, {worker}, {replicaId}, {instanceId},
    {offering}, {noticeFile}, {tokenCounter} and {weights}."""
    env: Environment = Field(default_factory=dict)
    """Environment variables on top of the controller's own. None by default: what works in the shell works here."""
    termination_grace_s: Duration = 10.0
    """From SIGTERM to SIGKILL. Default 10s: a drained worker has nothing left to do but exit, and a hung one must not keep
    its place."""

    @property
    def place(self) -> str:
        """Its folder."""
        return self.state_dir

    @property
    def asks_for(self) -> frozenset[str]:
        """Placeholders in its command."""
        return frozenset(name for word in self.command for name in placeholders(word))


Provider: TypeAlias = LocalProvider
