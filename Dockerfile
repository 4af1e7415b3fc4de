FROM python:3.13.9-slim-bookworm AS build
# The wheel is compiled here: the image below has no compiler. COMPILED=0 builds the pure form.
ARG COMPILED=1
RUN if [ "$COMPILED" = 1 ]; then apt-get update && apt-get install --yes --no-install-recommends gcc=4:12.* libc6-dev=2.36-*; fi
WORKDIR /src
COPY tools/wheel tools/wheel
COPY pyproject.toml LICENSE ./
COPY deploy/grafana deploy/grafana
COPY deploy/logrotate deploy/logrotate
COPY deploy/systemd deploy/systemd
COPY profiles profiles
COPY middleware middleware
COPY app app
# The text for an index is not in the image, so that an edit of it compiles nothing again.
# The tools that build it have exact versions, too: by the older name of the setting and by the newer one.
ENV PIP_CONSTRAINT="/src/tools/wheel/build.txt /src/tools/wheel/image.txt"
RUN touch README.md && HATCH_BUILD_HOOKS_ENABLE="$COMPILED" PIP_BUILD_CONSTRAINT="$PIP_CONSTRAINT" pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM python:3.13.9-slim-bookworm
RUN --mount=type=bind,from=build,source=/wheels,target=/wheels \
    --mount=type=bind,from=build,source=/src/tools/wheel,target=/versions \
    pip install --no-cache-dir --root-user-action=ignore --constraint /versions/image.txt "$(ls /wheels/*.whl)[proxy,auth,compress,http2,learn,redis,re2,srv]" \
    # The base image comes without compiled modules, and a container that is read-only would compile them at each command.
    && python -m compileall -q -j 0 -x site-packages /usr/local/lib/python3.13

RUN useradd --uid 10001 --no-create-home --shell /usr/sbin/nologin univocal
USER univocal
WORKDIR /

# 8080 for clients; 8081, the admin listener, is for the container itself unless the configuration says otherwise.
EXPOSE 8080
# By bash alone: an interpreter that starts for each check would be most of what an idle container does.
HEALTHCHECK --interval=10s --timeout=3s --start-period=60s --start-interval=1s --retries=3 CMD ["bash", "-c", \
    "exec 3<>/dev/tcp/127.0.0.1/8081 && printf 'GET /-/ready HTTP/1.0\\r\\nHost: localhost\\r\\n\\r\\n' >&3 && grep -q ' 200 ' <&3"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["univocal"]
CMD ["serve", "--config", "/etc/univocal/univocal.toml"]
