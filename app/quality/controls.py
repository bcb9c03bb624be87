"""Quality vs speed: what of it stands in the URL."""

from app.selection.control import Control, matching, one_of, switch, whole

SHARES = (5, 10, 25, 50)  # per cent of the causal pairs that every method reads

LOSE = (1, 2, 5, 10)  # per cent of perplexity that a setting may lose
SAVES = {  # what a method saves -> how it is called
    "reads": "reads of each query",
    "memory": "memory of the KV cache",
    "prefill": "time of the prompt",
}

CONTROLS = {
    "tab": Control(one_of("quality", "equal", "speed")),  # what were tabs: their links lead on
    "quality_evidence": switch(False),
    "quality": Control(  # methods and their settings, see quality.cards
        matching(r"[a-z0-9_.~-]{1,400}"), name="choice of methods"
    ),
    "quality_saves": Control(one_of(*SAVES), "reads", "what the methods save"),
    "quality_memory": Control(matching(r"[a-z0-9_.~-]{1,400}"), name="choice of methods that save memory"),
    "quality_prefill": Control(matching(r"[a-z0-9_.~-]{1,400}"), name="choice of methods that save prefill time"),
    "quality_prefix": Control(whole(7), name="prompt length"),
    "quality_split": switch(False, "heads of DuoAttention"),
    "quality_lose": Control(one_of(*LOSE), 5, "loss that a search may not pass"),
    "quality_equal": Control(one_of(*SHARES), name="budget of all methods"),
    "equal_panel": Control(matching(r"[A-Za-z0-9][A-Za-z0-9 ,._-]{0,79}"), name="text and context"),
    "quality_read": Control(matching(r"all|[0-9]{2,7}w?"), name="choice of what is read"),
    "quality_paint": Control(matching(r"[a-z_]{1,40}"), name="painted method"),
    "quality_token": Control(whole(7), name="marked token"),
}
