"""Benchmarks on files: what of them stands in the URL."""

from app.selection.control import Control, matching, one_of, whole

SHOTS = (None, 0, 1, 2, 4, 8, 16)  # examples in a prompt
ITEMS = (20, 50, 100, 500, 0)  # questions; 0: all of them

CONTROLS = {
    "benchmark_tasks": Control(matching(r"none|[a-z_0-9]{1,40}(~[a-z_0-9]{1,40}){0,19}")),
    "benchmark_shots": Control(whole()),
    "benchmark_items": Control(whole(5), 100),
    "benchmark_question": Control(one_of("sparse", "dense"), "sparse"),
}
