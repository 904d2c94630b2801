"""What must be in the API server, or on disk, before an add-on is started.

Definitions of custom resources come from the add-on's own module in Go's module cache.
"""

from collections.abc import Callable, Mapping

from tests.cluster.api import Api
from tests.cluster.pki import Authority
from tests.cluster.programs import Site

SetUp = Callable[[Site, Authority, Api], None]
SET_UP: Mapping[str, SetUp] = {}
