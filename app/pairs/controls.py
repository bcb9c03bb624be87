"""Long-range pairs: what of it stands in the URL."""

from app.selection.control import Control, matching, one_of, switch

DISTANCES = (16, 32, 64, 128, 256, 512, 1024)  # tokens between query and key
TOPS = (20, 50, 100, 200)  # rows of the table

KINDS = ("copy", "induction", "same word", "same group")

CONTROLS = {
    "pair": Control(matching(r"([0-9]{1,4}\.){2}[0-9]{1,7}\.[0-9]{1,7}")),  # layer.head.query.key
    "distance": Control(one_of(*DISTANCES), 128, "smallest distance"),
    "kind": Control(one_of(*KINDS), name="kind of pairs"),
    "pairs_beside": Control(one_of("text", "model"), name="beside the pairs"),
    "top": Control(one_of(*TOPS), 100, "number of pairs"),
    "content": switch(True, "content words"),
}
