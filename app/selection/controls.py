"""Every value that can stand in the URL: what all pages share, and what each room declares.

A control's name is its key in the session, its widget's key and its name in the URL.
"""

from app.benchmarks import controls as benchmarks
from app.budgets import controls as budgets
from app.generate import controls as generate
from app.groups import controls as groups
from app.heads import controls as heads
from app.pairs import controls as pairs
from app.papers import controls as papers
from app.probes import controls as probes
from app.quality import controls as quality
from app.routing import controls as routing
from app.runs import controls as runs
from app.selection.control import HASH, MODEL, NAME, Control, matching, one_of, switch, whole
from app.speed import controls as speed
from app.start import controls as start
from app.temperature import controls as temperature
from app.tour import controls as tour
from app.training import controls as training
from app.worth import controls as worth

SHARED = {
    "model": Control(matching(MODEL), "demo"),
    "text": Control(matching(HASH)),
    "router": Control(matching(NAME)),
    "long_text": Control(one_of("windows", "first"), "windows", "long text"),
    "layer": Control(whole()),
    "group": Control(whole()),
    "head": Control(whole()),
    "query": Control(whole(7), name="token"),  # a token of the text, on every page that shows what one reads
    "other_text": Control(matching(HASH), name="second text"),
    "other_model": Control(matching(MODEL), name="second model"),
    "job": Control(matching(HASH)),
    "classroom": switch(False),  # large type, no tables
}
ROOMS = (
    heads,
    groups,
    pairs,
    budgets,
    temperature,
    routing,
    worth,
    speed,
    quality,
    generate,
    probes,
    benchmarks,
    training,
    papers,
    runs,
    tour,
    start,
)
CONTROLS = SHARED | {name: control for room in ROOMS for name, control in room.CONTROLS.items()}
