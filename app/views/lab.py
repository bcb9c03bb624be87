"""Lab: what was computed, tests, training, and the papers' numbers beside these."""

from app.papers import papers_page
from app.probes import tests_page
from app.runs import runs_page
from app.training import training_page
from app.ui.door import door

door({"runs": runs_page.show, "tests": tests_page.show, "training": training_page.show, "papers": papers_page.show})
