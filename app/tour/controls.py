"""The 60-second tour: what of it stands in the URL."""

from app.selection.control import Control, one_of

STEPS = {"token": "A token", "head": "A head", "pair": "A far pair", "sharpen": "Sharpen", "cut": "Cut to 10%"}

CONTROLS = {"step": Control(one_of(*STEPS), next(iter(STEPS)), "step of the tour")}
