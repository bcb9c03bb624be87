"""The pages: what the menu calls each, what it uses and rests on, and where its finding leads."""

from dataclasses import dataclass

# Chips of the top bar.
TEXT, GROUPS = ("text", "model"), ("text", "model", "groups")


@dataclass(frozen=True)
class Page:
    """A file of app/views. `chips`: what it uses of the bar on top; `answers`: what the menu says of it; `papers`: what
    it is about, whatever it shows."""

    view: str
    title: str
    chips: tuple[str, ...]
    answers: str
    papers: tuple[str, ...] = ()

    @property
    def address(self) -> str:
        """Its place in the URL; Start has none."""
        return "" if self.view == "start" else self.view.replace("_", "-")

    @property
    def leads(self) -> tuple[tuple[str, ...], ...]:
        """(view, what it tells, controls that the link carries besides) of where its finding leads."""
        return LEADS[self.view]


_SHARPEN = "What sharpening does to every head and the predictions."
_BREAKS = "How many keys each head needs, and where reading fewer breaks."
_BUCKETS = "Whether a router finds the attention without looking at every key."
_STILL = "What it still answers when it reads or keeps less, token by token."
_TIMED = "How much time sparse inference saves on this machine, against the fastest dense."
_TRAINED = "Training, routing collapse, the causality check and ablations."
_STORED = "What was computed here: search, open, pin, compare, take it elsewhere."
_ALL_FOUR = ("focus", "focal_attention", "calibrated_sparse_attention", "gwr_linear_routing")

MENU = {  # heading -> its pages
    "Look": (
        Page("start", "Start", GROUPS, "What the model reads in this text."),
        Page("tour", "60-second tour", (), "What attention reads, in five steps on a bundled text."),
        Page("long_range_pairs", "Long-range pairs", GROUPS, "Which far-apart tokens belong together.", ("focus",)),
        Page("attention_heads", "Attention heads", TEXT, "What each head reads, and what one token reads through it."),
        Page("softmax_temperature", "Softmax temperature", TEXT, _SHARPEN, ("focal_attention",)),
        Page("token_groups", "Token groups", GROUPS, "Which tokens the model learned to treat alike.", ("focus",)),
    ),
    "Shrink": (
        Page("kv_budgets", "KV budgets", TEXT, _BREAKS, ("calibrated_sparse_attention",)),
        Page("routing", "Routing", TEXT, _BUCKETS, ("gwr_linear_routing",)),
        Page("quality_vs_speed", "Quality vs speed", GROUPS, "What reading less costs on this text, and gains here."),
        Page("generate", "Generate", GROUPS, _STILL),
    ),
    "Decide": (
        Page("is_it_worth_it", "Is it worth it?", ("model",), "What sparse attention could gain at most."),
        Page("speed", "Speed", GROUPS, _TIMED),
        Page(
            "long_context_tests",
            "Long-context tests",
            GROUPS,
            "How far back it finds and uses something.",
            ("ruler",),
        ),
    ),
    "Lab": (
        Page("train_a_router", "Train a router", GROUPS, _TRAINED, ("focus",)),
        Page("papers_vs_measured", "Papers vs measured", ("model",), "Every row they print, beside ours.", _ALL_FOUR),
        Page("runs", "Runs", (), _STORED),
    ),
}
PAGES = {page.address: page for pages in MENU.values() for page in pages}

_READER = ("attention_heads", "The head that reads this pair", "layer", "head", "query")
_WORTH = ("is_it_worth_it", "What reading less could gain")
_SAVES = ("speed", "How much time it saves here")
_FAR = ("long_context_tests", "Whether it still finds what stands far back")
_COSTS = ("quality_vs_speed", "What reading less costs on your text")
_OF_GROUPS = ("quality_vs_speed", "What reading only these groups costs")
_TAKE = ("runs", "Take it with you: the numbers, as a bundle")
LEADS: dict[str, tuple[tuple[str, ...], ...]] = {  # view -> `Page.leads`
    "start": (_READER, ("long_range_pairs", "All far pairs of this text", "pair"), _WORTH),
    "tour": (("start", "A text of your own"), _WORTH),
    "long_range_pairs": (_READER, ("token_groups", "The group that holds it", "layer", "group")),
    "attention_heads": (
        ("kv_budgets", "How many keys this head needs", "budget_cells"),
        ("softmax_temperature", "This head, sharpened", "layer", "head", "query"),
        ("routing", "Whether a router finds what it reads"),
    ),
    "softmax_temperature": (
        ("attention_heads", "All that this head reads", "layer", "head", "query"),
        ("quality_vs_speed", "What sharpening does to the predictions, beside other methods"),
    ),
    "token_groups": (("long_range_pairs", "Far pairs of these groups", "layer", "group"), _OF_GROUPS),
    "kv_budgets": (("quality_vs_speed", "This budget beside other methods"), _SAVES),
    "routing": (
        ("quality_vs_speed", "What reading only those buckets costs"),
        ("kv_budgets", "How many keys a head needs at all"),
    ),
    "quality_vs_speed": (_SAVES, ("generate", "What it still answers"), _FAR),
    "generate": (("speed", "The same timed in rounds"), _COSTS, _FAR),
    "is_it_worth_it": (_COSTS, ("speed", "What it saves on this machine")),
    "speed": (("generate", "Watch it write, dense and sparse"), _TAKE, _WORTH),
    "long_context_tests": (_COSTS, _TAKE),
    "train_a_router": (("token_groups", "What its groups hold"), _OF_GROUPS),
    "papers_vs_measured": (("train_a_router", "Train the router of a row"), ("runs", "All runs")),
    "runs": (("papers_vs_measured", "The papers' numbers beside these"), ("start", "Another text")),
}
