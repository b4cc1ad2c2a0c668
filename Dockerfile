# Images that do not run as root and write only to /data, /models and /tmp:
#   docker build -t movemask .                              serves, predicts, lists and checks models
#   docker build -t movemask-tools --target tools .         and all other commands: audit, models import, models add
#   docker run --read-only --tmpfs /tmp -p 127.0.0.1:8000:8000 -e MOVEMASK_TRUSTED_HOSTS=localhost,127.0.0.1 -v movemask:/data movemask

# Pinned by digest, for amd64 and arm64. To take security updates of Debian, put the digest of a newer tag here.
ARG PYTHON_IMAGE=python:3.14.7-slim-trixie@sha256:51dafde81dbdb6ebde285137a295cf18a47ca95234fe388a343719cb97305b3d
FROM ${PYTHON_IMAGE} AS build
WORKDIR /src
COPY requirements/build.txt requirements/service.txt requirements/sbom.txt requirements/
# Left out: tests, type stubs, numpy's compiler support, onnxruntime's converters, and its C library, which its Python
# module does not load. The build starts the service once below, and fails if any of these is needed.
RUN python -m venv /opt/build \
 && /opt/build/bin/pip install --no-cache-dir --no-deps --require-hashes -r requirements/build.txt \
 && python -m venv --without-pip /opt/movemask \
 && /opt/build/bin/pip --python /opt/movemask/bin/python install --no-cache-dir --no-compile --no-deps --require-hashes \
    -r requirements/service.txt \
 && cd /opt/movemask/lib/python3.*/site-packages \
 && find . \( -type d -name tests -o -name '*.pyi' -o -name '*.pxd' -o -name '*.a' \) -prune -exec rm -rf {} + \
 && rm -rf numpy/distutils numpy/f2py numpy/_core/include sqlalchemy/testing \
    onnxruntime/datasets onnxruntime/quantization onnxruntime/tools onnxruntime/transformers \
    onnxruntime/capi/libonnxruntime.so.*
COPY pyproject.toml README.md LICENSE ./
COPY service service
COPY models models
COPY deploy/healthcheck.py deploy/healthcheck.py
# The shipped networks stay in the package, where no volume of an older release can hide them. /models is your own folder.
# Starting the service once writes the bytecode of the modules that it imports, and of no others.
RUN /opt/build/bin/pip wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir /wheels . \
 && /opt/build/bin/pip --python /opt/movemask/bin/python install --no-cache-dir --no-compile --no-index --no-deps /wheels/*.whl \
 && mkdir -p /opt/movemask/share/movemask && ln -s /models /opt/movemask/share/movemask/models \
 && install -D -m 644 deploy/healthcheck.py /opt/movemask/healthcheck.py \
 && export MOVEMASK_DATABASE_URL=sqlite:////tmp/ledger.db ORT_DISABLE_TELEMETRY=1 PATH=/opt/movemask/bin:$PATH \
 && movemask predict \
 && export MOVEMASK_PORT=$(python -c 'import psycopg, socket; print(socket.create_server(("127.0.0.1", 0)).getsockname()[1])') \
 && { movemask serve & server=$!; } \
 && until python -c "import urllib.request; urllib.request.urlopen('http://127.0.0.1:$MOVEMASK_PORT/readyz')" 2>/dev/null; \
    do kill -0 $server || exit 1; sleep 0.2; done \
 && kill $server && wait $server

# A list of the components in CycloneDX, for scanners: /opt/movemask/sbom.json of each image.
RUN python -m venv /opt/sbom \
 && /opt/sbom/bin/pip install --no-cache-dir --no-deps --require-hashes -r requirements/sbom.txt \
 && /opt/sbom/bin/cyclonedx-py environment --pyproject pyproject.toml --output-reproducible \
    --output-file /opt/movemask/sbom.json /opt/movemask/bin/python

FROM build AS build-tools
COPY requirements/tools.txt requirements/
RUN /opt/build/bin/pip --python /opt/movemask/bin/python install --no-cache-dir --no-deps --require-hashes \
    -r requirements/tools.txt \
 && /opt/sbom/bin/cyclonedx-py environment --pyproject pyproject.toml --output-reproducible \
    --output-file /opt/movemask/sbom.json /opt/movemask/bin/python

FROM ${PYTHON_IMAGE} AS base
RUN useradd --system --uid 10001 --no-create-home --shell /usr/sbin/nologin movemask \
 && install -d -o movemask -g movemask /data /models
# A Debian package with a chess engine, such as stockfish: --build-arg ENGINE=stockfish
ARG ENGINE=
RUN [ -z "$ENGINE" ] || { apt-get update && apt-get install -y --no-install-recommends "$ENGINE" && rm -rf /var/lib/apt/lists/*; }
LABEL org.opencontainers.image.title="movemask" \
      org.opencontainers.image.description="Chess move probabilities with all probability on legal moves, over HTTP" \
      org.opencontainers.image.licenses="GPL-3.0-or-later" \
      org.opencontainers.image.version="0.1.0"
ENV PATH=/opt/movemask/bin:$PATH:/usr/games \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    ORT_DISABLE_TELEMETRY=1 \
    MOVEMASK_HOST=0.0.0.0 \
    MOVEMASK_PORT=8000 \
    XDG_DATA_HOME=/opt/movemask/share \
    MOVEMASK_DATABASE_URL=sqlite:////data/movemask.db
USER movemask
WORKDIR /data
VOLUME /data
STOPSIGNAL SIGTERM
ENTRYPOINT ["movemask"]

FROM base AS tools
COPY --from=build-tools /opt/movemask /opt/movemask
ENV MPLCONFIGDIR=/tmp/matplotlib
CMD ["--help"]

FROM base AS serve
COPY --from=build /opt/movemask /opt/movemask
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=5s --start-period=20s --retries=3 \
  CMD ["python", "/opt/movemask/healthcheck.py"]
CMD ["serve"]
