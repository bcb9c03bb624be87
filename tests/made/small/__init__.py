"""A small app behind the doors of the real one, in which a part of the page asks again at the worst moment."""
