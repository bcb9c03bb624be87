"""Heads: what each head reads, and what sharpening does to it."""

from app.heads import heads_page
from app.temperature import temperature_page
from app.ui.door import door

door({"map": heads_page.show, "temperature": temperature_page.show})
