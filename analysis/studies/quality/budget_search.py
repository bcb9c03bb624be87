"""The search for a method's budget: few passes to the whole number that reads nearest to so many keys."""

from collections.abc import Callable

NEAR = 0.005  # of the target: near enough to stop looking


def nearest(read: Callable[[int], float], low: int, high: int, target: float, start: int | None = None) -> int:
    """The whole number in low..high at which the growing function `read` comes nearest to `target`, with few calls.

    From `start` (default `low`) it doubles, or takes a quarter, until the target lies between two numbers; then the
    next one is where a straight line meets it, and every second time the middle. It ends within NEAR of the target, or
    where nothing is left between.
    """
    found: dict[int, float] = {}

    def at(value: int) -> float:
        if value not in found:
            found[value] = read(value)
        return found[value]

    def near() -> bool:
        return min(abs(value - target) for value in found.values()) <= NEAR * target

    below = above = min(max(low if start is None else start, low), high)
    while at(above) < target and above < high and not near():
        below, above = above, min(high, max(2 * above, above + 1))
    while at(below) > target and below > low and not near():
        below, above = max(low, below // 4), below
    steps = 0
    while above - below > 1 and not near():
        slope = (at(above) - at(below)) / (above - below)
        guess = round(below + (target - at(below)) / slope) if steps % 2 == 0 and slope > 0 else (below + above) // 2
        guess = min(max(guess, below + 1), above - 1)
        below, above = (guess, above) if at(guess) < target else (below, guess)
        steps += 1
    return min(found, key=lambda value: (abs(found[value] - target), value))
