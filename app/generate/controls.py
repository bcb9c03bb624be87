"""Generate: what of it stands in the URL."""

from app.selection.control import Control, matching, switch, whole

CONTROLS = {
    "generate": Control(  # methods and their settings, see quality.cards
        matching(r"[a-z0-9_.~-]{1,400}"), "snapkv~ratio-0.75", "choice of methods"
    ),
    "generate_question": Control(matching(r"[^\x00-\x1f\x7f]{0,300}"), name="question"),
    "generate_new": Control(whole(), 48, "number of new tokens"),
    "generate_prompt": Control(whole(7), name="prompt length"),
    "generate_known": switch(True, "time of the question"),
    "generate_chat": switch(True, "chat template"),
    "generate_side": Control(whole(1), 1, "painted answer"),
    "generate_at": Control(whole(4), name="new token"),
    "generate_layer": Control(whole(), name="layer"),
    "generate_head": Control(whole(), name="head"),
}
