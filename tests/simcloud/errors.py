"""How SimCloud says no."""


class CloudError(Exception):
    """An error as an AWS API answers it; `status` None: the model's own, else 400.

    moto's serializers read `code` and `message`.
    """

    def __init__(self, code: str, message: str, *, status: int | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.status = status


class ConnectionDropped(Exception):
    """The connection broke; `carried_out` says whether the call was, which a client cannot know."""

    def __init__(self, *, carried_out: bool) -> None:
        super().__init__("connection dropped")
        self.carried_out = carried_out


def missing(what: str, name: str) -> CloudError:
    """Auto Scaling's answer to the name of something that is not there."""
    return CloudError("ValidationError", f"{what} not found - {name}")
