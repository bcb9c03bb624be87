# docker build -t focuscope . && docker run --rm -p 127.0.0.1:8501:8501 -v focuscope:/data focuscope
# With an NVIDIA GPU: --build-arg TORCH_INDEX=https://pypi.org/simple, and `docker run --gpus all`.
# Under another host name: -e STREAMLIT_SERVER_ALLOWED_HOSTS='["focuscope.example.org"]'
ARG BASE=python:3.12-slim-bookworm
FROM ${BASE}

ENV PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PATH=/opt/focuscope/bin:$PATH \
    FOCUSCOPE_STATE=/data/state HF_HOME=/data/huggingface NUMBA_CACHE_DIR=/data/numba

# The user that serves owns only /data, never the code.
RUN useradd --uid 10001 --home-dir /data --create-home focuscope && python3 -m venv /opt/focuscope
WORKDIR /app

# Libraries first: a change of the code does not install them again.
ARG TORCH=2.13.0
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
COPY requirements.txt constraints.txt ./
RUN pip install --no-deps torch==${TORCH} --index-url ${TORCH_INDEX} && grep -v '^torch==' constraints.txt > /tmp/versions \
    && pip install -r requirements.txt -c /tmp/versions

COPY . .
USER focuscope
VOLUME /data
EXPOSE 8501
# What readers took for a moment goes back to the system, as with run.py.
ENV PYTHONMALLOC=malloc
HEALTHCHECK --interval=30s --timeout=5s --start-period=30s \
    CMD ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:8501/_stcore/health', timeout=3)"]
CMD ["python", "-m", "streamlit", "run", "app/serve/served.py", "--server.address=0.0.0.0", "--server.port=8501", \
     "--server.headless=true", "--server.fileWatcherType=none", "--logger.hideWelcomeMessage=true"]
