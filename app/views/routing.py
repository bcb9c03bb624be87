"""Routing: can a router find the attention mass without looking at every key?"""

from app.routing import page
from app.ui import widgets

widgets.header(
    "Can a router find what a token would read?",
    "Keys in buckets, a few of them visited: GWR Linear and Saap, with the controls that the papers lack",
)
page.live()
