"""Generate: what does the model still answer when it reads or keeps less?"""

from app.generate import generate_page
from app.ui import widgets

widgets.header(
    "What does it still answer when it reads or keeps less?",
    "Dense attention beside up to two methods, token by token: what each writes, how long it takes, and which keys its "
    "KV cache still holds",
)
generate_page.page()
