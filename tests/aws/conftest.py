from tests.builders.aws import aws_environment, moto_server

__all__ = ["aws_environment", "moto_server"]
