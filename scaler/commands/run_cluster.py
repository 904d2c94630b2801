"""`headrace run --cluster`: the controller of a cluster's fleets as a process."""

import asyncio
import sys
from pathlib import Path

import structlog

from scaler.config.controller import load_controller
from scaler.config.faults import ConfigError
from scaler.kube.lease import LeadershipLost
from scaler.ledger.contract import StaleEpoch
from scaler.runtime.clock import SystemClock
from scaler.runtime.cluster.daemon import ClusterDaemon
from scaler.runtime.http import AddressInUse
from scaler.telemetry.logs import configure_logs

log = structlog.get_logger()


def run_cluster(path: Path, kubeconfig: Path | None) -> int:
    """Run until SIGTERM or SIGINT, for the cluster of `kubeconfig` or of the pod.

    Returns 0 when it was told to stop, 1 when it died or another controller leads, 2 where settings or address cannot be used.
    """
    try:
        settings = load_controller(path)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 2
    configure_logs()
    code = 0
    try:
        return asyncio.run(ClusterDaemon(settings, kubeconfig, SystemClock()).run())
    except* AddressInUse as errors:
        log.error("cannot_start", error=str(errors.exceptions[0]))
        code = 2
    except* (LeadershipLost, StaleEpoch) as errors:
        log.error("superseded", error=repr(errors.exceptions[0]))
        code = code or 1
    except* Exception as errors:
        log.error("task_died", exc_info=errors)
        code = code or 1
    return code
