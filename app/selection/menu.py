"""The pages: what the menu calls each, what it uses and rests on, and where its finding leads."""

from dataclasses import dataclass

TEXT, GROUPS = ("text", "model"), ("text", "model", "groups")  # chips of the top bar


@dataclass(frozen=True)
class Page:
    """A file of app/views. `chips`: what it uses of the bar on top; `answers`: what the menu says of it; `papers`: what
    it is about, whatever it shows; `leads`: (view, what it tells, controls that the link carries besides)."""

    view: str
    title: str
    chips: tuple[str, ...]
    answers: str
    leads: tuple[tuple[str, ...], ...]
    papers: tuple[str, ...] = ()

    @property
    def address(self) -> str:
        """Its place in the URL; Start has none."""
        return "" if self.view == "start" else self.view.replace("_", "-")


READER = ("attention_heads", "The head that reads this pair", "layer", "head", "query")
WORTH = ("is_it_worth_it", "What reading less could gain")
SAVES = ("speed", "How much time it saves here")
ANSWERS = ("generate", "What it still answers")
FAR = ("long_context_tests", "Whether it still finds what stands far back")
COSTS = ("quality_vs_speed", "What reading less costs on your text")
OF_GROUPS = ("quality_vs_speed", "What reading only these groups costs")
TAKE = ("runs", "Take it with you: the numbers, as a bundle")

MENU = {  # heading -> its pages
    "Look": (
        Page(
            "start",
            "Start",
            GROUPS,
            "What the model reads in this text.",
            (READER, ("long_range_pairs", "All far pairs of this text", "pair"), WORTH),
        ),
        Page(
            "tour",
            "60-second tour",
            (),
            "What attention reads, in five steps on a bundled text.",
            (("start", "A text of your own"), WORTH),
        ),
        Page(
            "long_range_pairs",
            "Long-range pairs",
            GROUPS,
            "Which far-apart tokens belong together.",
            (READER, ("token_groups", "The group that holds it", "layer", "group")),
            ("focus",),
        ),
        Page(
            "attention_heads",
            "Attention heads",
            TEXT,
            "What each head reads, and what one token reads through it.",
            (
                ("kv_budgets", "How many keys this head needs", "budget_cells"),
                ("softmax_temperature", "This head, sharpened", "layer", "head", "query"),
                ("routing", "Whether a router finds what it reads"),
            ),
        ),
        Page(
            "softmax_temperature",
            "Softmax temperature",
            TEXT,
            "What sharpening does to every head and the predictions.",
            (
                ("attention_heads", "All that this head reads", "layer", "head", "query"),
                ("quality_vs_speed", "What sharpening does to the predictions, beside other methods"),
            ),
            ("focal_attention",),
        ),
        Page(
            "token_groups",
            "Token groups",
            GROUPS,
            "Which tokens the model learned to treat alike.",
            (("long_range_pairs", "Far pairs of these groups", "layer", "group"), OF_GROUPS),
            ("focus",),
        ),
    ),
    "Shrink": (
        Page(
            "kv_budgets",
            "KV budgets",
            TEXT,
            "How many keys each head needs, and where reading fewer breaks.",
            (("quality_vs_speed", "This budget beside other methods"), SAVES),
            ("calibrated_sparse_attention",),
        ),
        Page(
            "routing",
            "Routing",
            TEXT,
            "Whether a router finds the attention without looking at every key.",
            (
                ("quality_vs_speed", "What reading only those buckets costs"),
                ("kv_budgets", "How many keys a head needs at all"),
            ),
            ("gwr_linear_routing",),
        ),
        Page(
            "quality_vs_speed",
            "Quality vs speed",
            GROUPS,
            "What reading less costs on this text, and gains here.",
            (SAVES, ANSWERS, FAR),
        ),
        Page(
            "generate",
            "Generate",
            GROUPS,
            "What it still answers when it reads or keeps less, token by token.",
            (
                ("speed", "The same timed in rounds"),
                ("quality_vs_speed", "What reading less costs on this text"),
                FAR,
            ),
        ),
    ),
    "Decide": (
        Page(
            "is_it_worth_it",
            "Is it worth it?",
            ("model",),
            "What sparse attention could gain at most, from a model's shape.",
            (COSTS, ("speed", "What it saves on this machine")),
        ),
        Page(
            "speed",
            "Speed",
            GROUPS,
            "How much time sparse inference saves on this machine, against the fastest dense.",
            (
                ("generate", "Watch it write, dense and sparse"),
                TAKE,
                ("is_it_worth_it", "What longer contexts could gain"),
            ),
        ),
        Page(
            "long_context_tests",
            "Long-context tests",
            GROUPS,
            "How far back it can find something and use it.",
            (COSTS, TAKE),
            ("ruler",),
        ),
    ),
    "Lab": (
        Page(
            "train_a_router",
            "Train a router",
            GROUPS,
            "Training, routing collapse, the causality check and ablations.",
            (("token_groups", "What its groups hold"), OF_GROUPS),
            ("focus",),
        ),
        Page(
            "papers_vs_measured",
            "Papers vs measured",
            ("model",),
            "Every row that the papers print, beside ours.",
            (("train_a_router", "Train the router of a row"), ("runs", "All runs")),
            ("focus", "focal_attention", "calibrated_sparse_attention", "gwr_linear_routing"),
        ),
        Page(
            "runs",
            "Runs",
            (),
            "What was computed here: search, open, pin, compare, take it elsewhere.",
            (("papers_vs_measured", "The papers' numbers beside these"), ("start", "Another text")),
        ),
    ),
}
PAGES = {page.address: page for pages in MENU.values() for page in pages}
