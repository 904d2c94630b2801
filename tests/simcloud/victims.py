"""Which instances a group ends when it shrinks by itself.

Source: Auto Scaling user guide, "Default termination policy": the zone with the most instances that has one unprotected;
there the oldest launch template; then by chance (AWS: closest to the next billing hour). Protected ones never.
"""

import random

from tests.simcloud.groups import Group, Member


def choose(group: Group, number: int, rng: random.Random) -> list[Member]:
    """Up to `number` members, in the order of their choice."""
    left = group.counted()
    chosen: list[Member] = []
    while len(chosen) < number:
        victim = _next(group, left, rng)
        if victim is None:
            break
        left.remove(victim)
        chosen.append(victim)
    return chosen


def _next(group: Group, left: list[Member], rng: random.Random) -> Member | None:
    open_to_it = [member for member in left if not member.protected]
    if not open_to_it:
        return None
    zones = {member.instance.zone for member in open_to_it}
    crowd = {zone: sum(member.instance.zone == zone for member in left) for zone in zones}
    fullest = [member for member in open_to_it if crowd[member.instance.zone] == max(crowd.values())]
    if "OldestInstance" in group.termination_policies:
        return min(fullest, key=lambda member: member.instance.launched_at_s)
    if "NewestInstance" in group.termination_policies:
        return max(fullest, key=lambda member: member.instance.launched_at_s)
    oldest = min(int(member.instance.spec.template_version or 0) for member in fullest)
    return rng.choice([m for m in fullest if int(m.instance.spec.template_version or 0) == oldest])
