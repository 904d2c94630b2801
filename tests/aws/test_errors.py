import pytest

from scaler.aws.contract import AwsFault
from scaler.aws.errors import classify, classify_words, is_clock_skew


@pytest.mark.parametrize(
    ("code", "status", "fault"),
    [
        ("RequestLimitExceeded", 503, AwsFault.THROTTLED),
        ("Throttling", 400, AwsFault.THROTTLED),
        ("ThrottlingException", 400, AwsFault.THROTTLED),
        ("SomethingThrottledToday", 400, AwsFault.THROTTLED),
        ("", 429, AwsFault.THROTTLED),
        ("InsufficientInstanceCapacity", 500, AwsFault.INSUFFICIENT_CAPACITY),
        ("UnfulfillableCapacity", 400, AwsFault.INSUFFICIENT_CAPACITY),
        ("MaxSpotInstanceCountExceeded", 400, AwsFault.QUOTA),
        ("VcpuLimitExceeded", 400, AwsFault.QUOTA),
        ("LimitExceeded", 400, AwsFault.QUOTA),
        ("SpotMaxPriceTooLow", 400, AwsFault.CONFIGURATION),
        ("InvalidLaunchTemplateId.NotFound", 400, AwsFault.CONFIGURATION),
        ("ValidationError", 400, AwsFault.CONFIGURATION),
        ("UnauthorizedOperation", 403, AwsFault.AUTHORISATION),
        ("ExpiredToken", 403, AwsFault.AUTHORISATION),
        ("RequestExpired", 400, AwsFault.AUTHORISATION),
        ("SignatureDoesNotMatch", 403, AwsFault.AUTHORISATION),
        ("InvalidInstanceID.NotFound", 400, AwsFault.NOT_FOUND),
        ("ResourceNotFoundException", 404, AwsFault.NOT_FOUND),
        ("ResourceContention", 500, AwsFault.CONTENTION),
        ("ScalingActivityInProgress", 400, AwsFault.CONTENTION),
        ("IdempotentCallInProgress", 500, AwsFault.CONTENTION),
        ("InternalError", 500, AwsFault.UNREACHABLE),
        ("NeverSeenBefore", 503, AwsFault.UNREACHABLE),
        ("NeverSeenBefore", 400, AwsFault.UNKNOWN),
        ("", 0, AwsFault.UNKNOWN),
    ],
)
def test_a_code_means_one_thing(code: str, status: int, fault: AwsFault) -> None:
    assert classify(code, status) is fault


@pytest.mark.parametrize(
    ("message", "fault"),
    [
        ("Instance Id not found - No managed instance found for instance ID: i-1", AwsFault.NOT_FOUND),
        ("The instance i-1 is not part of Auto Scaling group rollout.", AwsFault.NOT_FOUND),
        ("No active Lifecycle Action found with instance ID i-1", AwsFault.NOT_FOUND),
        ("Currently, desiredSize equals minSize (1).", AwsFault.CONFIGURATION),
    ],
)
def test_what_validation_error_means_is_in_its_words(message: str, fault: AwsFault) -> None:
    assert classify("ValidationError", 400, message) is fault


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (
            "We currently do not have sufficient p5.48xlarge capacity in the Availability Zone you requested.",
            AwsFault.INSUFFICIENT_CAPACITY,
        ),
        (
            "Could not launch Spot Instances. InsufficientInstanceCapacity - There is no Spot capacity available.",
            AwsFault.INSUFFICIENT_CAPACITY,
        ),
        (
            "Could not launch Spot Instances. MaxSpotInstanceCountExceeded - Max spot instance count exceeded.",
            AwsFault.QUOTA,
        ),
        ("You have requested more vCPU capacity than your current vCPU limit of 64 allows", AwsFault.QUOTA),
        ("Could not launch Spot Instances. SpotMaxPriceTooLow - Your Spot request price of 1", AwsFault.CONFIGURATION),
        ("RequestLimitExceeded - Request limit exceeded.", AwsFault.THROTTLED),
        ("You are not authorized to perform this operation", AwsFault.AUTHORISATION),
        ("Something new happened", AwsFault.UNKNOWN),
    ],
)
def test_a_failed_activity_is_read_from_its_words(text: str, fault: AwsFault) -> None:
    assert classify_words(text) is fault


def test_a_wrong_clock_is_told_from_wrong_credentials() -> None:
    assert is_clock_skew("RequestExpired", "Request has expired.")
    assert is_clock_skew("InvalidSignatureException", "Signature expired: 20260101T000000Z is now earlier than ...")
    assert not is_clock_skew("SignatureDoesNotMatch", "The request signature we calculated does not match")
