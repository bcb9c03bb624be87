"""Papers vs measured: what of it stands in the URL."""

from analysis.papers import PAPERS
from analysis.papers.ours import STATES
from app.selection.control import Control, one_of, whole

CONTROLS = {
    "paper": Control(one_of(*PAPERS), next(iter(PAPERS))),
    "paper_state": Control(one_of("all", *STATES), "all"),
    "paper_row": Control(whole()),
}
