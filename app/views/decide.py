"""Decide: what sparse attention could gain at most, and what it saves on this machine."""

from app.speed import speed_page
from app.ui.door import door
from app.worth import worth_page

door({"worth": worth_page.show, "speed": speed_page.show})
