"""What AWS's error codes and messages mean to us: one table, so that no two callers judge alike things differently.

Policy: a code decides; only where AWS puts several meanings under one code (`ValidationError`), or tells only text (failed
scaling activities), do its words. A code that nobody has listed is UNKNOWN, never capacity: whoever gets it backs off there
and nowhere else. Throttling is never lack of capacity; a wrong clock is AUTHORISATION, and says so.
Sources: EC2 "Error codes for the Amazon EC2 API", Auto Scaling "Common errors" and "Troubleshoot: instance launch failure",
EKS API "Errors", botocore's retry documentation; bug reports KP#8923 (throttled), KP#5789 (Spot quota), KP#9498 (Spot price),
kubernetes#11371 (clock).
"""

from collections.abc import Mapping
from types import MappingProxyType

from scaler.aws.contract import AwsFault

_CODES: Mapping[AwsFault, tuple[str, ...]] = {
    AwsFault.THROTTLED: (
        # botocore's own list, "Standard retry mode: throttling errors".
        "RequestLimitExceeded",
        "Throttling",
        "ThrottlingException",
        "ThrottledException",
        "RequestThrottled",
        "RequestThrottledException",
        "TooManyRequestsException",
        "TransactionInProgressException",
        "BandwidthLimitExceeded",
        "LimitExceededException",
        "ProvisionedThroughputExceededException",
        "PriorRequestNotComplete",
        "SlowDown",
        "EC2ThrottledException",
        "OverLimit",
    ),
    AwsFault.INSUFFICIENT_CAPACITY: (
        "InsufficientInstanceCapacity",
        "InsufficientHostCapacity",
        "InsufficientReservedInstanceCapacity",
        "InsufficientCapacity",
        "InsufficientCapacityOnHost",
        "UnfulfillableCapacity",
        "ReservationCapacityExceeded",
        # EC2 Spot request status: the pool has no room.
        "capacity-not-available",
    ),
    AwsFault.QUOTA: (
        "InstanceLimitExceeded",
        "VcpuLimitExceeded",
        "MaxSpotInstanceCountExceeded",
        "MaxSpotFleetRequestCountExceeded",
        "MaxScheduledInstanceCapacityExceeded",
        "VolumeLimitExceeded",
        "AddressLimitExceeded",
        "NetworkInterfaceLimitExceeded",
        "PrivateIpAddressLimitExceeded",
        "InsufficientFreeAddressesInSubnet",
        "InsufficientAddressCapacity",
        "AttachmentLimitExceeded",
        "ResourceLimitExceeded",
        "ResourceLimitExceededException",
        "LimitExceeded",
        "LimitExceededFault",
    ),
    AwsFault.CONFIGURATION: (
        "SpotMaxPriceTooLow",
        "Unsupported",
        "UnsupportedOperation",
        "UnsupportedInstanceAttribute",
        "ValidationError",
        "ValidationException",
        "InvalidAction",
        "InvalidAMIID.NotFound",
        "InvalidAMIID.Malformed",
        "InvalidAMIID.Unavailable",
        "InvalidBlockDeviceMapping",
        "InvalidFleetConfig",
        "InvalidGroup.NotFound",
        "InvalidInterface.IpAddressLimitExceeded",
        "InvalidKeyPair.NotFound",
        "InvalidLaunchTemplateId.NotFound",
        "InvalidLaunchTemplateId.VersionNotFound",
        "InvalidLaunchTemplateName.NotFoundException",
        "InvalidParameter",
        "InvalidParameterCombination",
        "InvalidParameterException",
        "InvalidParameterValue",
        "InvalidQueryParameter",
        "InvalidRequestException",
        "InvalidSecurityGroupID.NotFound",
        "InvalidSnapshot.NotFound",
        "InvalidSubnet",
        "InvalidSubnetID.NotFound",
        "MalformedQueryString",
        "MissingParameter",
        "MissingAction",
        "IdempotentParameterMismatch",
        "IdempotentParameterMismatchError",
        "InvalidCapacityReservationId.NotFound",
        "InvalidPlacementGroup.Unknown",
        "VPCIdNotSpecified",
        "VPCResourceNotSpecified",
        "AWS.SimpleQueueService.UnsupportedOperation",
    ),
    AwsFault.AUTHORISATION: (
        "AccessDenied",
        "AccessDeniedException",
        "AuthFailure",
        "AuthFailure.ServiceLinkedRoleCreationNotPermitted",
        "Blocked",
        "ExpiredToken",
        "ExpiredTokenException",
        "IncompleteSignature",
        "InvalidClientTokenId",
        "InvalidKMSKey.InvalidState",
        "InvalidSignatureException",
        "KMS.AccessDeniedException",
        "MissingAuthenticationToken",
        "NotAuthorized",
        "OptInRequired",
        "PendingVerification",
        "RequestExpired",
        "RequestTimeTooSkewed",
        "SignatureDoesNotMatch",
        "UnauthorizedOperation",
        "UnrecognizedClientException",
    ),
    AwsFault.NOT_FOUND: (
        "InvalidInstanceID.NotFound",
        "InvalidInstanceID.Malformed",
        "ResourceNotFoundException",
        "ResourceNotFound",
        "NotFoundException",
        "QueueDoesNotExist",
        "AWS.SimpleQueueService.NonExistentQueue",
        "InvalidID",
    ),
    AwsFault.CONTENTION: (
        "ResourceContention",
        "ResourceContentionFault",
        "ScalingActivityInProgress",
        "ScalingActivityInProgressFault",
        "ResourceInUse",
        "ResourceInUseFault",
        "ResourceInUseException",
        "IdempotentCallInProgress",
        "IdempotentCallInProgressFault",
        "IncorrectInstanceState",
        "IncorrectState",
        "IncorrectSpotRequestState",
        "ConcurrentTagAccess",
    ),
    AwsFault.UNREACHABLE: (
        "InternalError",
        "InternalFailure",
        "InternalServerError",
        "InternalServiceError",
        "ServerException",
        "ServiceUnavailable",
        "ServiceUnavailableException",
        "Unavailable",
        "RequestTimeout",
        "RequestTimeoutException",
    ),
}

FAULTS: Mapping[str, AwsFault] = MappingProxyType({code: fault for fault, codes in _CODES.items() for code in codes})
"""AWS's code -> what it means."""

_CLOCK_CODES = frozenset({"RequestExpired", "RequestTimeTooSkewed"})
_CLOCK_WORDS = ("signature expired", "signature not yet current", "request has expired")

_WORDS: tuple[tuple[str, AwsFault], ...] = (
    # Auto Scaling, TerminateInstanceInAutoScalingGroup and DetachInstances.
    ("no managed instance found", AwsFault.NOT_FOUND),
    ("instance id not found", AwsFault.NOT_FOUND),
    ("is not part of auto scaling group", AwsFault.NOT_FOUND),
    ("is not in auto scaling group", AwsFault.NOT_FOUND),
    ("not attached to auto scaling group", AwsFault.NOT_FOUND),
    ("no active lifecycle action found", AwsFault.NOT_FOUND),
    ("autoscalinggroup name not found", AwsFault.NOT_FOUND),
    # "Troubleshoot: instance launch failure": what activities say where no code is in the text.
    ("do not have sufficient", AwsFault.INSUFFICIENT_CAPACITY),
    ("insufficient capacity", AwsFault.INSUFFICIENT_CAPACITY),
    ("no spot capacity available", AwsFault.INSUFFICIENT_CAPACITY),
    ("requested instance type is not supported in your requested availability zone", AwsFault.CONFIGURATION),
    ("vcpu limit", AwsFault.QUOTA),
    ("instance limit", AwsFault.QUOTA),
    ("max spot instance count exceeded", AwsFault.QUOTA),
    ("spot request price is too low", AwsFault.CONFIGURATION),
    ("lower than the minimum required spot request", AwsFault.CONFIGURATION),
    ("not authorized", AwsFault.AUTHORISATION),
    ("rate exceeded", AwsFault.THROTTLED),
    ("request limit exceeded", AwsFault.THROTTLED),
)


def classify(code: str, status: int = 0, message: str = "") -> AwsFault:
    """What an error means; `status` is HTTP's (0: unknown), `message` is looked at only where the code says too little."""
    if _of_this_instance(code, message):
        return AwsFault.NOT_FOUND
    known = FAULTS.get(code)
    if known is not None:
        return known
    if "Throttl" in code or status == 429:
        return AwsFault.THROTTLED
    return AwsFault.UNREACHABLE if status >= 500 else AwsFault.UNKNOWN


def classify_words(text: str) -> AwsFault:
    """What a failed activity's status message means: a known code in it first, then the words of AWS's own documentation.

    UNKNOWN where neither is there.
    """
    named = [code for code in FAULTS if len(code) > len("Unavailable") and code in text]
    if named:
        return FAULTS[max(named, key=len)]
    return _by_words(text) or AwsFault.UNKNOWN


def is_clock_skew(code: str, message: str) -> bool:
    """Whether a refused signature is the fault of a clock (RequestExpired, "Signature expired: ...")."""
    words = message.lower()
    return code in _CLOCK_CODES or any(word in words for word in _CLOCK_WORDS)


def _of_this_instance(code: str, message: str) -> bool:
    return code in ("ValidationError", "ValidationException") and _by_words(message) is AwsFault.NOT_FOUND


def _by_words(text: str) -> AwsFault | None:
    words = text.lower()
    return next((fault for word, fault in _WORDS if word in words), None)
