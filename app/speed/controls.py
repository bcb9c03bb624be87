"""Speed: what of it stands in the URL."""

from app.selection.control import Control, matching, one_of, switch, whole

ON = {"model": "The loaded model on this text", "shapes": "Bare attention shapes"}
WHAT = {"attention": "attention over a prompt", "decode": "attention of one token", "inference": "the whole model"}
MEMBERS = {"even": "random, of equal size", "skewed": "random, of unequal size", "router": "this router's on this text"}
DTYPES = ("bfloat16", "float32", "float16")

CONTROLS = {
    "speed_on": Control(one_of(*ON), "model", "choice of what is timed"),
    "speed_what": Control(one_of(*WHAT), "attention", "choice of what is measured"),
    "speed_heads": Control(whole(), 8, "number of heads"),
    "speed_size": Control(whole(), 64, "head size"),
    "speed_groups": Control(whole(), 8, "number of groups"),
    "speed_top": Control(whole(), name="groups per token"),
    "speed_window": Control(whole(7), name="window"),
    "speed_sinks": Control(whole(), name="number of sinks"),
    "speed_dtype": Control(one_of(*DTYPES), DTYPES[0], "precision"),
    "speed_batch": Control(whole(), 1, "batch"),
    "speed_members": Control(one_of(*MEMBERS), "even", "kind of groups"),
    "speed_lengths": Control(matching(r"[0-9kKmM, ]{1,80}"), "1024, 4096, 16384", "list of lengths"),
    "speed_prompt": Control(whole(7), name="prompt length"),
    "speed_new": Control(whole(), 32, "number of new tokens"),
    "speed_rounds": Control(whole(), 5, "number of rounds"),
    "speed_evidence": switch(False),
}
