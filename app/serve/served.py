"""What is served: the app's entry behind its headers and its gate, in a small process. `python run.py` starts it."""

from pathlib import Path

import streamlit as st
from starlette.middleware import Middleware

from app.serve.gate import Gate
from app.serve.headers import Headers
from app.serve.memory import give_back
from app.serve.visits import Visits

give_back()
around = [Middleware(part) for part in (Headers, Gate, Visits)]
app = st.App(Path(__file__).parents[1] / "streamlit_app.py", middleware=around)
