"""The options of `stress` and `spread`, which start processes of their own."""

import argparse

INPUTS = {"validators": 9000, "pages": 900, "chromium": 100}


def stress_options(verb: str, sub: argparse.ArgumentParser) -> None:
    """The options of the verb `stress`, named as the parameters of `tests.stress.parts.stress`, and of `spread`."""
    if verb == "spread":
        sub.add_argument("study", metavar="STUDY", help="a verb, or the name of a study")
        sub.add_argument("--over", required=True, metavar="NAME=A,B,C", help="an argument of it, and its values")
        sub.add_argument("--with", default="{}", metavar="JSON", help="its other arguments, as an object")
        sub.add_argument("--engine", default="local", metavar="local|ray|ray://HOST:10001")
        sub.add_argument("--workers", type=int, default=2, help="parts at once; each holds a model of its own")
        sub.add_argument("--gpus", type=float, default=0, help="that each worker gets, on Ray")
    if verb != "stress":
        return
    sub.add_argument("--parts", metavar="A,B,...", help="load, faults, validators, pages, chromium (default: all)")
    sub.add_argument("--sessions", type=int, default=50, help="readers at once")
    sub.add_argument("--seconds", type=float, default=120, help="of load")
    sub.add_argument("--every", type=float, default=10, help="seconds between two interactions of a reader")
    for name, default in INPUTS.items():
        sub.add_argument(f"--{name}", type=int, default=default, help="hostile inputs")
    sub.add_argument("-o", "--output", metavar="FILE.json", help="write the result here, and its table as FILE.md")
