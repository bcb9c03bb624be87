"""Cut: what reading or keeping less costs, by method, by head, by router, and in what the model writes."""

from functools import partial

from app.budgets import budgets_page
from app.generate import generate_page
from app.quality import quality_page
from app.routing import routing_page
from app.ui.door import door

door(
    {
        "methods": partial(quality_page.show, generate_page.same_question),
        "budgets": budgets_page.show,
        "routers": routing_page.show,
        "generate": generate_page.show,
    }
)
