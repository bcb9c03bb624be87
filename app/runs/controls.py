"""Runs: what of it stands in the URL."""

from app.selection.control import HASH, Control, matching, switch

CONTROLS = {
    "run": Control(matching(HASH)),
    "run_other": Control(matching(HASH), name="second run"),
    "runs_find": Control(matching(r"[^\x00-\x1f\x7f\ud800-\udfff]{0,80}"), "", "search"),
    "runs_made": Control(matching(r"[a-z][a-z0-9-]{0,39}"), name="kind of run"),
    "runs_pinned": switch(False, "filter"),
    "runs_table": Control(matching(r"[a-z_]{1,40}"), name="table"),
    "runs_column": Control(matching(r"[A-Za-z0-9_. %()-]{1,60}"), name="column"),
}
