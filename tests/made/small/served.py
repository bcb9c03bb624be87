"""What is served: the small page behind the doors of the real app. FOCUSCOPE_BARE=1 leaves them away."""

import os
from pathlib import Path

import streamlit as st
from starlette.middleware import Middleware

from app.serve.gate import Gate
from app.serve.headers import Headers
from app.serve.memory import give_back
from app.serve.visits import Visits
from tests.made.small.late import Noticed, late, noted

late()
noted()
give_back()
doors = [Middleware(Headers), Middleware(Gate), Middleware(Visits, left=0.1)]
bare = os.environ.get("FOCUSCOPE_BARE") == "1"
app = st.App(Path(__file__).with_name("page.py"), middleware=[Middleware(Noticed), *([] if bare else doors)])
