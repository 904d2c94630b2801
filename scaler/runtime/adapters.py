"""From the configuration to adapters: the actor of each pool, and the notice sources that the pools need.

A provider's YAML model and its adapter's settings meet here and nowhere else, one arm a provider.
Pools cannot come or go while the controller runs; their settings can change, and then their actor is made anew.
"""

from collections.abc import Mapping
from pathlib import Path

from scaler.act.base import PoolActor
from scaler.act.local import LocalPoolSettings
from scaler.act.registry import make_actor
from scaler.config.convert import local_providers, placeholder_values, providers
from scaler.config.providers import LocalProvider, Provider
from scaler.config.schema import RolloutFleet
from scaler.interruptions.base import NoticeSource
from scaler.interruptions.local import LocalNoticeSettings
from scaler.interruptions.registry import make_source
from scaler.model.clock import Clock
from scaler.runtime.config_watch import ConfigWatch


class Actors:
    """One actor for each pool of the configuration in use."""

    def __init__(self, config: ConfigWatch, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self._made: dict[str, tuple[object, PoolActor]] = {}

    async def current(self) -> Mapping[str, PoolActor]:
        """The actors by pool, made anew where settings have changed."""
        wanted = pool_settings(self._config.fleet)
        for name in [
            name for name, (settings, _) in self._made.items() if wanted.get(name, (None, None))[1] != settings
        ]:
            await self._made.pop(name)[1].close()
        for name, (provider, settings) in wanted.items():
            if name not in self._made:
                self._made[name] = settings, make_actor(provider, settings, pool=name, clock=self._clock)
        return {name: actor for name, (_, actor) in self._made.items()}

    async def close(self) -> None:
        """Give up connections; instances stay."""
        for _, actor in self._made.values():
            await actor.close()


def pool_settings(fleet: RolloutFleet) -> dict[str, tuple[str, object]]:
    """Pool -> its provider and the settings that its actor takes."""
    values = placeholder_values(fleet)
    return {name: (provider.type, _settings(provider, values)) for name, provider in providers(fleet).items()}


def notice_sources(fleet: RolloutFleet, clock: Clock) -> dict[str, NoticeSource]:
    """The sources that tell of the fleet's pools, each once, by a bounded name."""
    folders = sorted({provider.state_dir for provider in local_providers(fleet).values()})
    return {
        f"local-{number}" if number else "local": make_source(
            "local", LocalNoticeSettings(state_dir=Path(folder)), clock=clock
        )
        for number, folder in enumerate(folders)
    }


def _settings(provider: Provider, values: Mapping[str, str]) -> object:
    if not isinstance(provider, LocalProvider):
        raise TypeError(f"pools of type {provider.type} are acted on in a cluster: headrace run --cluster")
    return LocalPoolSettings(
        state_dir=Path(provider.state_dir),
        command=provider.command,
        placeholders=dict(values),
        env=dict(provider.env),
        termination_grace_s=provider.termination_grace_s,
    )
