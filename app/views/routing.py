"""Routing: can a router find the attention mass without looking at every key?"""

from app.routing import routing_page
from app.ui import widgets

widgets.header(
    "Can a router find what a token would read?",
    "Keys are sorted into buckets and a query visits a few of them: GWR Linear and Saap, with controls the papers lack",
)
routing_page.live()
