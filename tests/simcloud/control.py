"""The hand of fate over HTTP: what a benchmark or a person does to a SimCloud in another process. JSON in, JSON out.

`POST /_sim/reclaim {"number"?, "zone"?, "instance_type"?, "group"?, "ids"?, "noticed"?}`, `/_sim/recommend {"ids"}`,
`/_sim/fail {"ids"}`, `/_sim/capacity {"instance_type", "zone", "market", "instances"}`, `/_sim/price`, `/_sim/subscribe
{"queue", "kinds"?}`, `/_sim/fault {"operation", "code", "times"?}`; `GET /_sim/log`, `/_sim/ended`, `/_sim/instances`,
`/_sim/health`.
"""

import json
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import Any

from aiohttp import web

from tests.simcloud.asked import Json
from tests.simcloud.errors import CloudError
from tests.simcloud.market import Offering
from tests.simcloud.sim import SimCloud

Handler = Callable[[web.Request], Awaitable[web.Response]]


def control_routes(sim: SimCloud) -> list[web.RouteDef]:
    """What the module's docstring lists."""
    acts: dict[str, Callable[..., Any]] = {
        "reclaim": sim.fate.reclaim,
        "recommend": sim.fate.recommend,
        "fail": sim.fate.fail,
        "schedule": sim.fate.schedule,
        "capacity": lambda **asked: _set_capacity(sim, asked),
        "price": sim.market.set_price,
        "subscribe": lambda queue, kinds=None: sim.bus.subscribe(queue, frozenset(kinds) if kinds else None),
        "fault": sim.fail_next,
    }
    told: dict[str, Callable[[], Any]] = {
        "health": lambda: {"ok": True},
        "log": lambda: [asdict(call) for call in sim.log.calls],
        "ended": lambda: [asdict(one) for one in sim.ended()],
        "instances": lambda: [_shown(sim, instance_id) for instance_id in list(sim.instances.by_id)],
    }
    posts = [web.post(f"/_sim/{name}", _posted(sim, act)) for name, act in acts.items()]
    return posts + [web.get(f"/_sim/{name}", _got(sim, tell)) for name, tell in told.items()]


def _set_capacity(sim: SimCloud, asked: Json) -> None:
    offering = Offering(asked["instance_type"], asked["zone"], asked.get("market", "spot"))
    sim.market.set_capacity(offering, asked.get("instances"))


def _posted(sim: SimCloud, act: Callable[..., Any]) -> Handler:
    async def handle(request: web.Request) -> web.Response:
        asked = await request.json() if request.can_read_body else {}
        try:
            with sim.kernel.lock:
                sim.advance()
                done = act(**asked)
        except (CloudError, TypeError, KeyError) as error:
            return web.json_response({"error": str(error)}, status=400)
        return web.json_response({"done": done})

    return handle


def _got(sim: SimCloud, tell: Callable[[], Any]) -> Handler:
    async def handle(_: web.Request) -> web.Response:
        with sim.kernel.lock:
            sim.advance()
            return web.json_response(tell(), dumps=lambda told: json.dumps(told, default=str))

    return handle


def _shown(sim: SimCloud, instance_id: str) -> Json:
    one = sim.instances.by_id[instance_id]
    return {
        "instance_id": one.instance_id,
        "instance_type": one.spec.instance_type,
        "market": one.spec.market,
        "zone": one.zone,
        "state": one.state,
        "group": one.group,
        "tags": one.tags,
        "launched_at_s": one.launched_at_s,
        "noticed_at_s": one.noticed_at_s,
        "eks_draining": one.eks_draining,
    }
