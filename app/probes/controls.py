"""Long-context tests: what of them stands in the URL."""

from app.selection.control import Control, matching, one_of, switch, whole

TASKS = {  # verb's name -> (title, axis of its map beside the length, glossary term)
    "uuid_needle": ("Needle", "depth", "needle"),
    "several_needles": ("Several needles", "depth", "several needles"),
    "json": ("JSON pairs", "depth", "JSON pairs"),
    "passages": ("Passage among passages", "depth", "passage among passages"),
    "frequent_words": ("Frequent words", None, "frequent words"),
    "labels": ("Labels from examples", "examples", "labels from examples"),
}
WAYS = {
    "as_trained": "the model's own",
    "longer": "twice as far, unchanged",
    "dynamic_ntk": "twice as far, dynamic NTK",
}
REACHES = tuple(1 << power for power in range(7, 18))  # tokens of the longest prompt
ITEMS = (4, 8, 16, 32, 64)  # questions in a cell
CHOICES = (2, 4, 8, 16)  # candidates of a question

TABS = {"one": "One test", "every": "Every test", "files": "Benchmarks"}

CONTROLS = {
    "tests_tab": Control(one_of(*TABS)),
    "tests_evidence": switch(False),
    "probe": Control(one_of(*TASKS), "uuid_needle", "long-context test"),
    "probe_methods": Control(matching(r"[a-z_]{1,40}(~[a-z_]{1,40}){0,9}"), name="choice of methods"),
    "probe_reach": Control(whole(7), name="longest prompt"),
    "probe_items": Control(one_of(*ITEMS), 8, "number of questions"),
    "probe_choices": Control(one_of(*CHOICES), 4, "number of candidates"),
    "probe_rope": Control(one_of(*WAYS), "as_trained", "choice of positions"),
}
