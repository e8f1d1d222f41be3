"""What can go wrong with a RocketMQ peer. Each message says what to look at."""

from tandemlog_server.ha.errors import HaError


class BrokerError(HaError):
    """The broker cannot be reached, or does not say what a broker says. Trying again may help."""


class BrokerRefusedError(BrokerError):
    """The broker answered a request with an error; `code` is RocketMQ's response code."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


class NoBrokerError(BrokerError):
    """No process listens at the address: the connection was refused."""


class WrongBrokerError(HaError):
    """This store and this broker do not belong together; an operator has to act."""


class LogsDifferError(HaError):
    """From `position` on, the log here is not the broker's; compared from `start` on."""

    def __init__(self, start: int, position: int) -> None:
        super().__init__(f"this log differs from the broker's at {position}")
        self.start = start
        self.position = position
