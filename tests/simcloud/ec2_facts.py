"""EC2's calls about what may be had: prices, scores, types, zones, launch templates. Shapes: EC2 API reference."""

from dataclasses import dataclass, field
from typing import Any

from tests.simcloud.asked import Asked, Json, filters, matches, page
from tests.simcloud.catalogue import instance_types, subnet_of, zone_id
from tests.simcloud.errors import CloudError
from tests.simcloud.instances import Instances, LaunchSpec
from tests.simcloud.kernel import Kernel, as_date
from tests.simcloud.market import ON_DEMAND, SPOT, Market, Offering
from tests.simcloud.settings import Settings


@dataclass(slots=True)
class Template:
    """A launch template: its versions, counted from 1."""

    template_id: str
    name: str
    versions: list[Json] = field(default_factory=list)
    default: int = 1

    def number(self, version: str | None) -> int:
        """`$Latest`, `$Default`, a number, or nothing for the default."""
        if version in {None, "", "$Default"}:
            return self.default
        return len(self.versions) if version == "$Latest" else int(str(version))


class Templates:
    """Launch templates by id and by name."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self.by_id: dict[str, Template] = {}

    def find(self, template_id: str | None, name: str | None) -> Template:
        """One of them.

        Raises:
            CloudError: InvalidLaunchTemplateName.NotFoundException, or the same of its id.
        """
        for one in self.by_id.values():
            if one.template_id == template_id or (not template_id and one.name == name):
                return one
        kind = "Id" if template_id else "Name"
        code = f"InvalidLaunchTemplate{kind}.NotFoundException"
        raise CloudError(code, "At least one of the launch templates specified in the request does not exist.")

    def make(self, name: str, data: Json) -> Template:
        """A new template."""
        if any(one.name == name for one in self.by_id.values()):
            raise CloudError("InvalidLaunchTemplateName.AlreadyExistsException", "Launch template name already in use.")
        made = Template(self._kernel.hex_id("lt-"), name, [data])
        self.by_id[made.template_id] = made
        return made

    def spec(self, chosen: Json, override: Json) -> LaunchSpec:
        """What a group launches by a LaunchTemplateSpecification and one override of its mixed policy."""
        template = self.find(chosen.get("LaunchTemplateId"), chosen.get("LaunchTemplateName"))
        number = template.number(chosen.get("Version"))
        data = template.versions[number - 1]
        market = data.get("InstanceMarketOptions", {})
        max_price = market.get("SpotOptions", {}).get("MaxPrice")
        reserved = data.get("CapacityReservationSpecification", {}).get("CapacityReservationTarget", {})
        return LaunchSpec(
            instance_type=override.get("InstanceType") or data.get("InstanceType", ""),
            market=market.get("MarketType", ON_DEMAND),
            template_id=template.template_id,
            template_version=str(number),
            image_id=data.get("ImageId", "ami-0123456789abcdef0"),
            max_price_usd=None if max_price is None else float(max_price),
            tags=_instance_tags(data) | _template_tags(template.template_id, number),
            reservation_id=reserved.get("CapacityReservationId", ""),
        )


def _instance_tags(data: Json) -> dict[str, str]:
    marked = [one for one in data.get("TagSpecifications", []) if one.get("ResourceType") == "instance"]
    return {tag["Key"]: tag.get("Value", "") for one in marked for tag in one.get("Tags", [])}


def _template_tags(template_id: str, number: int) -> dict[str, str]:
    return {"aws:ec2launchtemplate:id": template_id, "aws:ec2launchtemplate:version": str(number)}


class Ec2Facts:
    """See the module's docstring."""

    def __init__(
        self, kernel: Kernel, settings: Settings, market: Market, instances: Instances, templates: Templates
    ) -> None:
        self._kernel = kernel
        self._settings = settings
        self._market = market
        self._instances = instances
        self._templates = templates

    def describe_spot_price_history(self, asked: Asked) -> Json:
        """Changes between the times asked for, and the price that held when they began; newest first."""
        wanted = filters(asked)
        types = asked.p.get("InstanceTypes") or wanted.get("instance-type") or list(self._settings.instance_types)
        zone = asked.p.get("AvailabilityZone")
        zones = [zone] if zone else wanted.get("availability-zone") or list(self._settings.zones)
        rows = [row for name in types for place in zones for row in self._prices(name, place, asked)]
        rows.sort(key=lambda row: row["Timestamp"], reverse=True)
        shown, token = page(rows, asked.p.get("NextToken"), asked.p.get("MaxResults"))
        return {"SpotPriceHistory": shown, "NextToken": token or ""}

    def _prices(self, instance_type: str, zone: str, asked: Asked) -> list[Json]:
        if not self._market.offered(instance_type, zone):
            return []
        history = self._market.prices.get((instance_type, zone)) or [(0.0, self._market.price(instance_type, zone))]
        start_s, end_s = _time(asked, "StartTime", 0.0), _time(asked, "EndTime", self._kernel.now_s())
        before = [row for row in history if row[0] <= start_s][-1:]
        within = [row for row in history if start_s < row[0] <= end_s]
        return [
            {
                "AvailabilityZone": zone,
                "AvailabilityZoneId": zone_id(zone),
                "InstanceType": instance_type,
                "ProductDescription": "Linux/UNIX",
                "SpotPrice": f"{usd:.6f}",
                "Timestamp": as_date(at_s),
            }
            for at_s, usd in before + within
        ]

    def get_spot_placement_scores(self, asked: Asked) -> Json:
        types, single = asked.p.get("InstanceTypes", []), asked.p.get("SingleAvailabilityZone", False)
        scores = {zone: max((self._score(name, zone) for name in types), default=1) for zone in self._settings.zones}
        if single:
            rows = [
                {"Region": self._settings.region, "AvailabilityZoneId": zone_id(zone), "Score": score}
                for zone, score in scores.items()
            ]
        else:
            rows = [{"Region": self._settings.region, "Score": max(scores.values())}]
        return {"SpotPlacementScores": sorted(rows, key=lambda row: -int(str(row["Score"])))[:10]}

    def _score(self, instance_type: str, zone: str) -> int:
        held = self._instances.held(Offering(instance_type, zone, SPOT))
        return self._market.score(instance_type, zone, held)

    def describe_instance_types(self, asked: Asked) -> Json:
        names = asked.p.get("InstanceTypes") or list(self._settings.instance_types)
        unknown = [name for name in names if name not in instance_types()]
        if unknown:
            message = f"The following supplied instance types do not exist: [{', '.join(unknown)}]"
            raise CloudError("InvalidInstanceType", message)
        wanted = filters(asked).get("instance-type", ["*"])
        found = [instance_types()[name] for name in names if matches([name], wanted)]
        shown, token = page(found, asked.p.get("NextToken"), asked.p.get("MaxResults"))
        return {"InstanceTypes": shown, "NextToken": token}

    def describe_instance_type_offerings(self, asked: Asked) -> Json:
        kind, wanted = asked.p.get("LocationType", "region"), filters(asked)
        rows = [
            {"InstanceType": name, "LocationType": kind, "Location": place}
            for name in self._settings.instance_types
            for place in self._places(kind, name)
            if matches([name], wanted.get("instance-type", ["*"])) and matches([place], wanted.get("location", ["*"]))
        ]
        shown, token = page(rows, asked.p.get("NextToken"), asked.p.get("MaxResults"))
        return {"InstanceTypeOfferings": shown, "NextToken": token}

    def _places(self, kind: str, instance_type: str) -> list[str]:
        zones = [zone for zone in self._settings.zones if self._market.offered(instance_type, zone)]
        if kind == "region":
            return [self._settings.region] if zones else []
        return zones if kind == "availability-zone" else [zone_id(zone) for zone in zones]

    def describe_availability_zones(self, asked: Asked) -> Json:
        names = asked.p.get("ZoneNames") or list(self._settings.zones)
        rows = [
            {
                "ZoneName": zone,
                "ZoneId": zone_id(zone),
                "RegionName": self._settings.region,
                "State": "available",
                "ZoneType": "availability-zone",
                "OptInStatus": "opt-in-not-required",
            }
            for zone in names
        ]
        return {"AvailabilityZones": rows}

    def describe_subnets(self, asked: Asked) -> Json:
        wanted = asked.p.get("SubnetIds")
        rows: list[dict[str, Any]] = [
            {"SubnetId": subnet_of(zone), "AvailabilityZone": zone, "AvailabilityZoneId": zone_id(zone)}
            for zone in self._settings.zones
            if not wanted or subnet_of(zone) in wanted
        ]
        return {"Subnets": rows}

    def create_launch_template(self, asked: Asked) -> Json:
        made = self._templates.make(asked.p["LaunchTemplateName"], asked.p["LaunchTemplateData"])
        return {"LaunchTemplate": _template_view(made)}

    def create_launch_template_version(self, asked: Asked) -> Json:
        one = self._templates.find(asked.p.get("LaunchTemplateId"), asked.p.get("LaunchTemplateName"))
        one.versions.append(asked.p["LaunchTemplateData"])
        return {"LaunchTemplateVersion": _version_view(one, len(one.versions))}

    def describe_launch_templates(self, asked: Asked) -> Json:
        ids, names = asked.p.get("LaunchTemplateIds") or [], asked.p.get("LaunchTemplateNames") or []
        chosen = [self._templates.find(i, None) for i in ids] + [self._templates.find(None, n) for n in names]
        found = chosen if ids or names else list(self._templates.by_id.values())
        return {"LaunchTemplates": [_template_view(one) for one in found]}

    def describe_launch_template_versions(self, asked: Asked) -> Json:
        one = self._templates.find(asked.p.get("LaunchTemplateId"), asked.p.get("LaunchTemplateName"))
        wanted = asked.p.get("Versions")
        numbers = [one.number(v) for v in wanted] if wanted else list(range(1, len(one.versions) + 1))
        return {"LaunchTemplateVersions": [_version_view(one, number) for number in numbers]}


def _time(asked: Asked, name: str, otherwise_s: float) -> float:
    given = asked.p.get(name)
    return otherwise_s if given is None else given.replace(tzinfo=as_date(0).tzinfo).timestamp()


def _template_view(one: Template) -> Json:
    return {
        "LaunchTemplateId": one.template_id,
        "LaunchTemplateName": one.name,
        "DefaultVersionNumber": one.default,
        "LatestVersionNumber": len(one.versions),
    }


def _version_view(one: Template, number: int) -> Json:
    return {
        "LaunchTemplateId": one.template_id,
        "LaunchTemplateName": one.name,
        "VersionNumber": number,
        "DefaultVersion": number == one.default,
        "LaunchTemplateData": one.versions[number - 1],
    }
