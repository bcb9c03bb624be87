"""Quality vs speed: how much faster is sparse inference here?"""

from app import speed, widgets

widgets.header(
    "How much faster is sparse inference here?",
    "Focus, tables 6 and 7 and appendix D: the model with its learned groups against the fastest dense path, in turns "
    "on this machine; kernel and whole model apart, and where dense wins",
)
speed.tab()
