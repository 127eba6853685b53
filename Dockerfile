# svdserve for the CPU, in two stages: compile, then only what the programs need at run time.
#   docker build -t svdserve .
#   docker run --rm -p 127.0.0.1:50051:50051 -p 127.0.0.1:9464:9464 -e SVDSERVE_INSECURE=true svdserve
# In a container the server listens on every interface, so it asks for TLS files (SVDSERVE_TLS_CERT, SVDSERVE_TLS_KEY) or
# for SVDSERVE_INSECURE=true, and does not start without either. The HTTP port of probes and metrics has no TLS: the network
# decides who reaches it.
ARG BASE=docker.io/library/debian:12

FROM ${BASE} AS build
SHELL ["/bin/bash", "-euo", "pipefail", "-c"]
WORKDIR /src
COPY deploy/bootstrap.sh deploy/
RUN deploy/bootstrap.sh build
COPY . .
RUN cmake --preset release -DSVDSERVE_TESTS=OFF -DSVDSERVE_BENCHMARKS=OFF \
 && cmake --build --preset release --target svdserve svdctl \
 && install -D --strip -t /out/bin build/release/bin/svdserve build/release/bin/svdctl
# The packages that own the shared libraries which the programs ask for, whatever this distribution calls them.
# (Their paths without /usr, which dpkg may or may not know them by.)
RUN ldd /out/bin/* | awk '$2 == "=>" {sub("^/usr", "", $3); print "*" $3}' | sort -u \
  | xargs dpkg -S | cut -d: -f1 | sort -u > /out/packages

FROM ${BASE}
SHELL ["/bin/bash", "-euo", "pipefail", "-c"]
COPY --from=build /out/packages /usr/local/share/doc/svdserve/
RUN apt-get update \
 && DEBIAN_FRONTEND=noninteractive xargs -a /usr/local/share/doc/svdserve/packages \
      apt-get install -y --no-install-recommends \
 && rm -rf /var/lib/apt/lists/*
COPY LICENSE /usr/local/share/doc/svdserve/
COPY --from=build /out/bin/ /usr/local/bin/

LABEL org.opencontainers.image.title="svdserve" \
      org.opencontainers.image.description="Singular value decompositions as a service" \
      org.opencontainers.image.licenses="Apache-2.0"
ENV SVDSERVE_LISTEN=0.0.0.0:50051 \
    SVDSERVE_METRICS_LISTEN=0.0.0.0:9464 \
    SVDSERVE_METRICS_INSECURE=true
EXPOSE 50051 9464
USER 10001:10001
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=5s --retries=3 \
  CMD ["svdctl", "health", "--address", "127.0.0.1:50051"]
ENTRYPOINT ["svdserve"]
