"""The JSON Schema (draft 2020-12) of a fleet's YAML, for editors, Helm and `headrace schema`.

`x-reload: restart` marks what a running controller cannot change; checks across fields are not in it.
"""

from typing import Any

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core.core_schema import WithDefaultSchema

from scaler.config.scalars import UNITS
from scaler.config.schema import RolloutFleet
from scaler.config.yaml_model import YamlModel


class _Generator(GenerateJsonSchema):
    def default_schema(self, schema: WithDefaultSchema) -> JsonSchemaValue:
        """As in pydantic, but a default is shown as it would be written."""
        found = super().default_schema(schema)
        unit = UNITS.get(found.get("format", ""))
        if unit is not None and isinstance(found.get("default"), float):
            found["default"] = unit.write(found["default"])
        return found


def fleet_json_schema() -> dict[str, Any]:
    """The schema of one document."""
    return json_schema_of(RolloutFleet)


def json_schema_of(model: type[YamlModel]) -> dict[str, Any]:
    """The schema of a document of this model."""
    schema = model.model_json_schema(by_alias=True, schema_generator=_Generator)
    return {"$schema": _Generator.schema_dialect, **schema}
