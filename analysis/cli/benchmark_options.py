"""The options of the verb `benchmark`, named as its study's parameters. Loads nothing heavy."""

import argparse

from analysis.benchmarks import TASKS


def benchmark_options(verb: str, sub: argparse.ArgumentParser) -> None:
    """Add what `benchmark` takes; nothing for another verb."""
    if verb != "benchmark":
        return
    sub.add_argument("tasks", nargs="*", metavar="TASK", help=f"{', '.join(TASKS)}, or a task of the harness itself")
    sub.add_argument("--data", default="", metavar="DIR", help="one folder of files per task (models_cache/benchmarks)")
    sub.add_argument(
        "--methods", default="dense", metavar="A,B,...", help="methods beside dense, which is always first"
    )
    sub.add_argument("--shots", type=int, metavar="N", help="examples in a prompt (default: the task's own)")
    sub.add_argument("--items", type=int, metavar="N", help="only the first so many questions")
    sub.add_argument("--question", default="sparse", help="sparse (set-up A) or dense (set-up B): how it is read")
    sub.add_argument("--router", default="k8-top1", help="which router: kGROUPS-topMEMBERSHIPS")
