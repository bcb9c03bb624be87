"""Token groups: what of it stands in the URL."""

from app.selection.control import NAME, Control, matching, one_of

MEASURES = {"share": "Largest group's share by layer", "confidence": "Confidence by layer"}
VIEWS = ("PCA", "UMAP")

CONTROLS = {
    "measure": Control(one_of(*MEASURES), "share"),
    "view": Control(one_of(*VIEWS), "PCA"),
    "other": Control(matching(NAME), name="second router"),
}
