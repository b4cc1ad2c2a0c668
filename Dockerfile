# The service in a slim image: built in one stage, run in another, not as root, with nothing written outside /data.
#   docker build -t movemask .
#   docker run --read-only -p 8000:8000 -v movemask:/data movemask

FROM python:3.11-slim-bookworm AS build
WORKDIR /src
COPY requirements/build.txt requirements/service.txt requirements/
RUN python -m venv /opt/build \
 && /opt/build/bin/pip install --no-cache-dir --no-deps --require-hashes -r requirements/build.txt \
 && python -m venv /opt/movemask \
 && /opt/movemask/bin/pip install --no-cache-dir --no-deps --require-hashes -r requirements/service.txt
COPY pyproject.toml README.md LICENSE ./
COPY service service
COPY models models
RUN /opt/build/bin/pip wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir /wheels . \
 && /opt/movemask/bin/pip install --no-cache-dir --no-index --no-deps /wheels/*.whl \
 && /opt/movemask/bin/pip uninstall --yes --quiet pip

FROM python:3.11-slim-bookworm
RUN useradd --system --uid 10001 --no-create-home --shell /usr/sbin/nologin movemask \
 && install -d -o movemask -g movemask /data
COPY --from=build /opt/movemask /opt/movemask
ENV PATH=/opt/movemask/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    ORT_DISABLE_TELEMETRY=1 \
    MOVEMASK_HOST=0.0.0.0 \
    MOVEMASK_PORT=8000 \
    MOVEMASK_DATABASE_URL=sqlite:////data/movemask.db
USER movemask
WORKDIR /data
VOLUME /data
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=5s --start-period=20s --retries=3 \
  CMD ["python", "-c", "import os, urllib.request; urllib.request.urlopen(f'http://127.0.0.1:{os.environ[\"MOVEMASK_PORT\"]}/readyz', timeout=4)"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["movemask"]
CMD ["serve"]
