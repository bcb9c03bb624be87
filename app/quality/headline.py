"""The sentence on top of Quality vs speed: what to run for this text on this machine, and from which length on."""

from collections.abc import Sequence

from app.quality.words import NEAR, Shown, signed

BEGIN = "For this text and machine:"


def headline(shown: Sequence[Shown]) -> str:
    """The fastest of the methods that keep the quality and were timed faster than dense; where none was, why not."""
    near = [one for one in shown if one.honest and one.row["difference"] <= NEAR]
    if not near:
        return f"{BEGIN} stay dense. No chosen method keeps the perplexity within {NEAR:.0%}." if shown else ""
    timed = [one for one in near if one.speed]
    gains = [(gain["times"], at, gain) for at, one in enumerate(timed) for gain in one.speed["gains"] if _wins(gain)]
    if gains:
        times, at, gain = max(gains, key=lambda found: found[0])
        one, guessed = timed[at], ", estimated" if gain["estimated"] else ""
        return (
            f"{BEGIN} {one.title}, {signed(one.row['difference'])} perplexity, {times:.1f} times faster {gain['of']} "
            f"above {gain['crossover']:,} tokens (at {gain['at']:,}{guessed}); below it, stay dense."
        )
    if timed:
        longest = max(gain["at"] for one in timed for gain in one.speed["gains"])
        return (
            f"{BEGIN} stay dense. Of what keeps the perplexity within {NEAR:.0%}, {_names(timed)} "
            f"{'was' if len(timed) == 1 else 'were'} timed, and nothing is faster at up to {longest:,} tokens."
        )
    able = [one for one in near if one.asked.about.get("kernels")]
    if able:
        return f"{BEGIN} stay dense until a speed is measured: {_names(able)} can be timed below."
    return f"{BEGIN} stay dense. {_names(near)} would keep the quality, but nothing of it has a kernel here."


def gains(numbers: dict, measured_at: int) -> list[dict]:
    """What a timing says of both phases: `of` what, `times` at the longest length looked at (`at`), `crossover`, and
    whether that is `estimated`, beyond the length that was measured."""
    found = []
    for name, of in (("prefill", "to the first token"), ("per_token", "for each further token")):
        points = numbers["longer"][name]
        if points:
            at, times = points[-1]
            found.append(
                {"of": of, "times": times, "at": at, "crossover": numbers["crossover"][name]}
                | {"estimated": at > measured_at}
            )
    return found


def _wins(gain: dict) -> bool:
    return gain["crossover"] is not None and gain["times"] > 1


def _names(shown: Sequence[Shown]) -> str:
    titles = [one.title for one in shown]
    return titles[0] if len(titles) == 1 else f"{', '.join(titles[:-1])} and {titles[-1]}"
