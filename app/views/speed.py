"""Speed: how much time does sparse inference save on this machine?"""

from app.speed import evidence, speed_page
from app.ui import widgets
from app.ui.tabs import drawer

widgets.header(
    "How much time does it save here?",
    "Focus (tables 6 and 7, appendix D): sparse inference and bare attention shapes, timed in turns with the fastest "
    "dense path of this machine",
)
speed_page.timed()
drawer("speed_evidence", evidence.show)
