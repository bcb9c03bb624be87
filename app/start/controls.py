"""Start: what of it stands in the URL."""

from app.selection.control import Control, one_of

CONTROLS = {"start_beside": Control(one_of("text", "model"), name="beside the text")}
