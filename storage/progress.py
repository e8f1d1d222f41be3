"""How far a long run is: called now and then with the bytes done and the bytes in all."""

from collections.abc import Callable

Progress = Callable[[int, int], None]
