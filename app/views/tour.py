"""The 60-second tour: what attention reads, in five steps on a bundled text."""

from app.tour import page

page.show()
