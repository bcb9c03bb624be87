"""Read: the text as the model reads it, its far links, its groups."""

from app.groups import groups_page
from app.pairs import pairs_page
from app.start import start_page
from app.ui.door import door

door({"text": start_page.show, "links": pairs_page.show, "groups": groups_page.show})
