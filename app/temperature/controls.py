"""Softmax temperature: what of it stands in the URL."""

from app.selection.control import Control, matching, one_of, switch

SOFTMAX = (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.25, 1.5)  # temperatures of attention
SHARPNESS = {  # column -> (title, glossary term, log axis)
    "effective_support": ("Effective support, keys", "effective support", True),
    "entropy": ("Entropy, nats", "entropy (attention)", False),
    "max_prob": ("Largest probability", "largest probability", False),
}
STUDIES = {  # choice -> (study, what it is called, the question)
    "temperatures": (
        "focal-temperatures",
        "Constant, learned, adapted",
        "Does training with a temperature help, from the start or later? Tables 1 and 2, figure 8a.",
    ),
    "limits": (
        "focal-limits",
        "Limits of a learned temperature",
        "How far may a learned temperature go? Figure 8b.",
    ),
    "scaling": (
        "focal-scaling",
        "Size, tokens, context",
        "Does it pay more with size, tokens or context? Figures 2 to 4.",
    ),
    "tasks": (
        "focal-tasks",
        "Long-context tasks",
        "Does a model trained with a temperature answer more from far? Figures 5 to 7.",
    ),
}

TABS = {"token": "One token", "heads": "Every head", "text": "Perplexity"}

CONTROLS = {
    "temperature_tab": Control(one_of(*TABS)),
    "temperature_evidence": switch(False),
    "softmax": Control(one_of(*SOFTMAX), 0.4, "softmax temperature"),
    "sharpness": Control(one_of(*SHARPNESS), "effective_support", "measure of sharpness"),
    "trained_with": Control(one_of(*STUDIES), "temperatures", "study"),
    "by_layer": Control(matching(r"[0-9.]{1,6}(~[0-9.]{1,6}){0,255}"), name="temperatures of the layers"),
}
