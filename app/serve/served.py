"""What is served: the app's entry behind its security headers, in a small process. `python run.py` starts it."""

from pathlib import Path

import streamlit as st
from starlette.middleware import Middleware

from app.serve.headers import Headers
from app.serve.memory import give_back

give_back()
app = st.App(Path(__file__).parents[1] / "streamlit_app.py", middleware=[Middleware(Headers)])
