FROM python:3.13-slim AS build
# The wheel is compiled here: the image below has no compiler. COMPILED=0 builds the pure form.
ARG COMPILED=1
RUN if [ "$COMPILED" = 1 ]; then apt-get update && apt-get install --yes --no-install-recommends gcc libc6-dev; fi
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY app app
COPY deploy deploy
COPY middleware middleware
COPY profiles profiles
COPY tools/wheel tools/wheel
RUN HATCH_BUILD_HOOKS_ENABLE="$COMPILED" pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM python:3.13-slim
RUN --mount=type=bind,from=build,source=/wheels,target=/wheels \
    pip install --no-cache-dir --root-user-action=ignore "$(ls /wheels/*.whl)[proxy,auth,redis,re2]" \
    # The base image comes without compiled modules, and a container that is read-only would compile them at each command.
    && python -m compileall -q -j 0 -x site-packages /usr/local/lib/python3.13

RUN useradd --uid 10001 --no-create-home --shell /usr/sbin/nologin univocal
USER univocal
WORKDIR /

# 8080 for clients; 8081, the admin listener, is for the container itself unless the configuration says otherwise.
EXPOSE 8080
HEALTHCHECK --interval=5s --timeout=3s --start-period=10s --start-interval=1s --retries=3 \
    CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8081/-/ready', timeout=2)"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["univocal"]
CMD ["serve", "--config", "/etc/univocal/univocal.toml"]
