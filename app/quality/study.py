"""The tab Equal reads: the stored table of all methods at the same budgets, and figure 1 of Focus drawn from it."""

from app import cached, stored, study_panels, widgets

NAME = "equal-budget"
COMMAND = "python -m analysis study equal-budget --corpus DIR --windows-count 4"


def tab() -> None:
    """What was found, a panel for every text and context, all rows, and how it was made."""
    found = stored.study(NAME)
    if found is None:
        stored.missing("Every method at the same budgets", COMMAND)
        return
    stored.badge(found)
    widgets.prose(found["sentence"])
    widgets.prose(found["notes"], "more")
    study_panels.panels(found, "equal", cached.glossary("equal reads"))
    study_panels.rows(NAME, found, "equal")
    stored.made(found)
