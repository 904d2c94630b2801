"""Kubernetes' answers in the words of the actors' contract."""

from collections.abc import Iterator
from contextlib import contextmanager

from scaler.act.base import PoolUnavailable
from scaler.act.worker_sets.base import SetRefused
from scaler.kube.contract import Denied, Invalid, KubeError, NotFound
from scaler.kube.facts import PodIndex


@contextmanager
def reading(what: str) -> Iterator[None]:
    """What is not there is refused; what may not or cannot be read is not known.

    Raises:
        SetRefused: there is no such object.
        PoolUnavailable: no answer, or none that tells.
    """
    try:
        yield
    except NotFound as error:
        raise SetRefused(f"there is no {what}") from error
    except KubeError as error:
        raise PoolUnavailable(f"{what}: {error}") from error


@contextmanager
def writing(what: str) -> Iterator[None]:
    """As `reading`, and what the server will never take is refused too."""
    try:
        yield
    except NotFound as error:
        raise SetRefused(f"there is no {what}") from error
    except (Denied, Invalid) as error:
        raise SetRefused(f"{what}: {error}") from error
    except KubeError as error:
        raise PoolUnavailable(f"{what}: {error}") from error


def current_at_s(pods: PodIndex) -> float:
    """Up to when the watched pods are whole. `PoolUnavailable` before their first list: nothing is decided on part of it."""
    at_s = pods.current_at_s
    if at_s is None:
        raise PoolUnavailable("the pods have not been listed yet")
    return at_s
