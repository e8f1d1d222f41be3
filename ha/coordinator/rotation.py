"""Which endpoint is asked: the same one until it fails, then the next of the list, round and round.
Pure."""


class Rotation:
    """See the module."""

    def __init__(self, endpoints: tuple[str, ...]) -> None:
        self._endpoints = endpoints
        self._at = 0

    @property
    def current(self) -> str:
        return self._endpoints[self._at]

    @property
    def round_ended(self) -> bool:
        """Whether the next endpoint is the first of the list again."""
        return self._at == 0

    def leave(self, endpoint: str) -> None:
        """`endpoint` failed. Nothing changes where another call has moved on already."""
        if endpoint == self.current:
            self._at = (self._at + 1) % len(self._endpoints)
