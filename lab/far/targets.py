"""What the model that reads far was trained for: every target with its number, and the command that measures all."""

from analysis.metrics.proportions import share
from analysis.probes.tasks import TASKS
from lab.far.measures import CHOICES

UNSURE = "not significantly different"
COMMAND = "python -m lab.far.run CORPUS WORK --measure FOLDER"
FAR_CONTEXT = {"novels": 0.04, "python": 0.15}  # nats, at least
ANSWERED = {"uuid_needle": 0.9, "several_needles": 0.9, "json": 0.7, "labels": 0.7}  # share of questions, at least


def targets(numbers: dict) -> str:
    """The table of targets, Markdown."""
    bits, cost, copy = numbers["bits_per_byte"]["novels"], numbers["cost_of_window"], numbers["second_copy"]
    inducing = sum(score > 0.3 for layer in numbers["circuit"]["induction"] for score in layer)
    previous = max(score for layer in numbers["circuit"]["previous_token"] for score in layer)
    lines = ["| target | aimed at | measured | reached |", "|---|---|---|---|"]
    lines.append(_line("bits per byte, novels", "at most 1.44", f"{bits:.3f}", bits <= 1.44))
    for name, aim in FAR_CONTEXT.items():
        gain = numbers["gains"][name]["nats"]
        lines.append(_line(f"far context, {name}, nats", f"at least {aim}", f"{gain:.3f}", gain >= aim))
    lines += [_answered(name, task) for name, task in numbers["tasks"].items()]
    lines += [
        _line("perplexity with a window of 64, on the mixture", "at least 6% worse", f"{cost:+.1%}", cost >= 0.06),
        _line("second copy of 128 random tokens, nats", "at most 1.0", f"{copy:.2f}", copy <= 1),
        _line("heads with an induction score above 0.3", "at least 4", f"{inducing}", inducing >= 4),
        _line("best previous-token head", "above 0.6", f"{previous:.2f}", previous > 0.6),
    ]
    chance = (
        f"Of questions chance is {1 / CHOICES:.0%}, and brackets are 95% intervals over questions, all of one text."
    )
    more = "What recall documents give and cost: `python -m analysis study recall-documents`."
    return "\n".join([*lines, f"\n{chance} All of it is measured by `{COMMAND}`. {more}"])


def _line(target: str, aim: str, measured: str, reached: bool | str) -> str:
    verdict = {True: "yes", False: "**no**"}.get(reached, reached)
    return f"| {target} | {aim} | {measured} | {verdict} |"


def _answered(name: str, task: dict) -> str:
    """The line of one long-context task; a target inside the interval is neither reached nor missed."""
    right = round(task["dense"] * task["items"])
    answered = share([1] * right + [0] * (task["items"] - right))
    title = f"{TASKS[name].title} at 1,024 tokens, of {task['items']} questions"
    interval = f"{answered.low:.0%} to {answered.high:.0%}"
    measured = f"{task['dense']:.0%} ({interval}; with a window of 128: {task['window']:.0%})"
    aim = ANSWERED.get(name)
    if aim is None:
        return _line(title, "-", measured, "")
    reached = UNSURE if answered.low < aim <= answered.high else task["dense"] >= aim
    return _line(title, f"at least {aim:.0%}", measured, reached)
