"""AWS's wire formats, by botocore's service models: moto's routers, parsers and serializers used as a library.

moto knows nothing of what is done here, and nothing of its backends is used. Its warnings about error codes that a model
lacks are avoided by a model that has no name to warn about: such codes are what tests are for.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, cast

from moto.core.model import OperationModel, ServiceModel
from moto.core.parse import PROTOCOL_PARSERS
from moto.core.request import Request, determine_request_protocol
from moto.core.routing import get_service_router
from moto.core.serialize import DefaultAttributePicker, ResponseSerializer, get_serializer_class
from moto.core.utils import get_service_model
from werkzeug.exceptions import NotFound

from tests.simcloud.errors import CloudError

SERVICES = ("ec2", "autoscaling", "eks", "sqs")


@dataclass(frozen=True, slots=True)
class Parsed:
    """A request understood."""

    service: str
    operation: str
    parameters: Mapping[str, Any]
    caller: str
    model: OperationModel
    protocol: str


@dataclass(frozen=True, slots=True)
class Answer:
    """A response to be sent."""

    status: int
    headers: dict[str, str]
    body: bytes


def parse(method: str, url: str, headers: Mapping[str, str], body: bytes) -> Parsed:
    """Understand a signed request.

    Raises:
        LookupError: no service of ours, or no operation of it.
    """
    caller, service = _signer(headers)
    request = Request.from_primitives(method, url, dict(headers), body)
    try:
        model, labels = get_service_router(service).match(request)
    except NotFound:
        raise LookupError(f"no operation of {service} at {method} {url}") from None
    protocol = determine_request_protocol(get_service_model(service), request.content_type)
    asked = PROTOCOL_PARSERS[protocol](model).parse(
        {
            "method": method,
            "values": request.values,
            "headers": request.headers,
            "body": request.data,
            "url_path": request.path,
            "url_params": labels,
        }
    )
    return Parsed(service, str(model.name), {**asked, **labels}, caller, model, protocol)


def _signer(headers: Mapping[str, str]) -> tuple[str, str]:
    """Access key and service of a version 4 signature."""
    scope = headers.get("Authorization", "").partition("Credential=")[2].partition(",")[0].split("/")
    if len(scope) < 4 or scope[3] not in SERVICES:
        raise LookupError(f"not signed for one of {', '.join(SERVICES)}")
    return scope[0], scope[3]


def answer(parsed: Parsed, result: Mapping[str, Any], request_id: str) -> Answer:
    """The result as the service's protocol has it."""
    return _sent(_serializer(parsed, parsed.model), dict(result), request_id, None)


def refusal(parsed: Parsed, error: CloudError, request_id: str) -> Answer:
    """The error as the service's protocol has it."""
    model = OperationModel({}, _nameless(parsed.service))
    return _sent(_serializer(parsed, model), error, request_id, error.status)


def _serializer(parsed: Parsed, model: OperationModel) -> ResponseSerializer:
    return get_serializer_class(parsed.service, parsed.protocol)(model, value_picker=_Keys())


class _Keys(DefaultAttributePicker):
    """Members by their very names: the default tries aliases."""

    def __call__(self, context: Any) -> Any:
        found = context.obj
        return found.get(context.key) if isinstance(found, dict) else getattr(found, context.key, None)


@cache
def _nameless(service: str) -> ServiceModel:
    """The service's model with its errors only, and without the id that moto's warnings need."""
    full = get_service_model(service)
    metadata = {key: value for key, value in full.metadata.items() if key != "serviceId"}
    errors = {shape.name: cast("Any", shape)._shape_model for shape in full.error_shapes}
    members = {
        member.name: cast("Any", member)._shape_model
        for shape in full.error_shapes
        for member in cast("Any", shape).members.values()
    }
    return ServiceModel({"metadata": metadata, "shapes": {**members, **errors}, "operations": {}}, service)


def _sent(serializer: ResponseSerializer, result: object, request_id: str, status: int | None) -> Answer:
    made = serializer.serialize(result)
    body = made["body"]
    headers = {**made["headers"], "x-amzn-RequestId": request_id}
    sent = body.encode() if isinstance(body, str) else body
    return Answer(status or made["status_code"], headers, sent)
