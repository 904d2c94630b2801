from tests.builders.aws import aws_environment, moto_server
from tests.builders.ec2_pools import bed
from tests.builders.local import real_clock, site

__all__ = ["aws_environment", "bed", "moto_server", "real_clock", "site"]
