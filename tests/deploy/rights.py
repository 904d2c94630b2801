"""Rights that roles grant, and rights that an API server's audit log shows as used or denied."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tests.deploy.chart import Json, of_kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Right:
    """One verb on one resource; `role` is where it is granted."""

    role: str
    namespace: str
    """Empty: everywhere."""
    group: str
    resource: str
    verb: str
    names: tuple[str, ...] = ()

    @property
    def what(self) -> tuple[str, str, str]:
        """Group, resource, verb."""
        return self.group, self.resource, self.verb

    def covers(self, use: "Use") -> bool:
        """Whether this right allows that use."""
        here = not self.namespace or use.namespace == self.namespace
        return here and self.what == use.what and (not self.names or use.name in self.names)


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """A request, as the audit log has it."""

    what: tuple[str, str, str]
    namespace: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Audited:
    """What one user did."""

    used: frozenset[Use]
    denied: tuple[str, ...]


def granted(objects: Iterable[Json], account: str) -> list[Right]:
    """What roles bound to this service account grant."""
    objects = list(objects)
    roles = {(each["kind"], each["metadata"].get("namespace", ""), each["metadata"]["name"]): each for each in objects}
    found: list[Right] = []
    for binding in of_kind(objects, "ClusterRoleBinding", "RoleBinding"):
        if any(subject["name"] == account for subject in binding["subjects"]):
            reference, place = binding["roleRef"], binding["metadata"].get("namespace", "")
            role = roles[reference["kind"], place if reference["kind"] == "Role" else "", reference["name"]]
            found += of_role(role, place)
    return found


def of_role(role: Json, namespace: str = "") -> Iterator[Right]:
    """Each verb of each rule apart."""
    for rule in role["rules"]:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                for verb in rule["verbs"]:
                    yield Right(
                        role=role["metadata"]["name"],
                        namespace=namespace,
                        group=group,
                        resource=resource,
                        verb=verb,
                        names=tuple(rule.get("resourceNames", ())),
                    )


def audited(events: Iterable[Mapping[str, Any]], user: str) -> Audited:
    """What a user asked for, and what it was refused for lack of a right."""
    used: set[Use] = set()
    denied: list[str] = []
    for event in events:
        if event.get("user", {}).get("username") != user:
            continue
        if (event.get("annotations") or {}).get("authorization.k8s.io/decision") == "forbid":
            denied.append(f"{event['verb']} {event['requestURI']}")
        elif "objectRef" in event:
            used.add(_use(event))
    return Audited(used=frozenset(used), denied=tuple(sorted(set(denied))))


def _use(event: Mapping[str, Any]) -> Use:
    about = event["objectRef"]
    resource = "/".join(filter(None, (about["resource"], about.get("subresource"))))
    return Use(
        what=(about.get("apiGroup", ""), resource, event["verb"]),
        namespace=about.get("namespace", ""),
        name=about.get("name", ""),
    )
