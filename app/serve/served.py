"""What is served: the app's entry behind its security headers. `python run.py` starts it."""

from pathlib import Path

import streamlit as st
from starlette.middleware import Middleware

from app.serve.headers import Headers

app = st.App(Path(__file__).parents[1] / "streamlit_app.py", middleware=[Middleware(Headers)])
