"""A rate per second, for what is known only after it was spent.

level = rate        one second's worth, the most that is kept
spend n             level - n, also below 0
time t passes       level + t x rate
level < 0           in debt: wait -level / rate seconds
"""


class TokenBucket:
    """A rate per second, as a token bucket that may go into debt.

    The cost of a request is known only after it has arrived, so it is always spent; the debt says
    how long the caller has to wait before it may spend again. Over any time t, at most (1 + t) x
    rate and one more request pass. `now` is any clock that never goes back.
    """

    def __init__(self, rate: float, now: float) -> None:
        self._rate = rate
        self._level = rate
        self._at = now

    def spend(self, amount: float, now: float) -> float:
        """Spend `amount`; returns how many seconds to wait before more is spent."""
        self._fill(now)
        self._level -= amount
        return self._debt_s()

    def try_spend(self, amount: float, now: float) -> bool:
        """Spend `amount` if it is there, else nothing: a refused caller owes nothing."""
        self._fill(now)
        if self._level < amount:
            return False
        self._level -= amount
        return True

    def wait_s(self, now: float) -> float:
        """How many seconds to wait before anything may be spent."""
        self._fill(now)
        return self._debt_s()

    def _fill(self, now: float) -> None:
        self._level = min(self._rate, self._level + max(0.0, now - self._at) * self._rate)
        self._at = max(self._at, now)

    def _debt_s(self) -> float:
        return max(0.0, -self._level / self._rate)
