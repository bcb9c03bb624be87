"""Attention heads: what of it stands in the URL."""

from app.selection.control import CORPUS, Control, matching, one_of, switch

STATISTICS = (  # of a head: the columns of the verb `statistics`
    "far_peaks",
    "entropy",
    "max_prob",
    "top_p_rank",
    "first_token_mass",
    "window_mass",
    "mean_distance",
    "previous_token",
    "induction",
)
WAYS = {"zero": "Zero", "mean": "Its mean", "resample": "Another position"}  # what takes a head's place
FINDERS = (5, 10, 20)  # rows of the finder

CONTROLS = {
    "heads_evidence": switch(False),
    "alike": switch(False, "heads like this one"),
    "alike_all": switch(False, "choice of windows"),
    "named": switch(False, "names of heads"),
    "over_texts": switch(False, "a head over many texts"),
    "heads_corpus": Control(matching(CORPUS), name="choice of texts"),
    "without": switch(False, "what is lost without a head"),
    "without_by": Control(one_of(*WAYS)),
    "without_all": switch(False, "choice of windows"),
    "without_first": switch(False, "first-token choice"),
    "statistic": Control(one_of(*STATISTICS), STATISTICS[0]),
    "heads_shown": Control(one_of("map", "scatter"), "map", name="map or scatter"),
    "heads_across": Control(one_of(*STATISTICS), "entropy", name="statistic across"),
    "heads_colour": Control(one_of("layer", *STATISTICS), "layer", name="statistic in colour"),
    "order": Control(one_of("highest", "lowest")),
    "finder": Control(one_of(*FINDERS), 10),
    "tile": Control(matching(r"[0-9]{1,7}\.[0-9]{1,7}"), name="exact tile"),  # its first query and first key
    "beside": Control(one_of("head", "text", "model")),
    "other_head": Control(matching(r"[0-9]{1,4}\.[0-9]{1,4}"), name="second head"),  # layer.head
}
