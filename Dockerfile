# The engine's own frontend reads this (no `# syntax` line): a build pulls the two images below and nothing else.
# A release's binaries can take the place of the build stage: docker build --build-context build=DIR, where DIR has handoffd,
# handoffd-verify and an empty folder data/handoffd with mode 700 (scripts/image_trial makes one).

FROM rust:1.95-slim-bookworm AS source
WORKDIR /src
COPY Cargo.toml Cargo.lock LICENSE ./
COPY src ./src
COPY crates ./crates
COPY benches ./benches
COPY migrations ./migrations
COPY schemas ./schemas
COPY config ./config
COPY docs/errors ./docs/errors
COPY docs/openapi.json ./docs/openapi.json

# The notices that most of the binary's components ask for.
FROM source AS notices
COPY scripts/third_party.py ./scripts/
# Any Python of Debian's writes the same text, so that no version is pinned.
# hadolint ignore=DL3008
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    apt-get update && apt-get install -y --no-install-recommends python3 && rm -rf /var/lib/apt/lists/* \
    && python3 scripts/third_party.py >/THIRD-PARTY.txt

FROM source AS build
# The caches live outside the layers: a change of our own code rebuilds our own code only.
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    cargo build --release --locked --features full --bin handoffd --bin handoffd-verify \
    && cp target/release/handoffd target/release/handoffd-verify / \
    && mkdir /data && mkdir -m 700 /data/handoffd

FROM gcr.io/distroless/cc-debian12:nonroot
LABEL org.opencontainers.image.title="handoffd" \
      org.opencontainers.image.description="A broker for handoffs between agents" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.source="https://github.com/handoffd/handoffd"
COPY --from=notices /src/LICENSE /THIRD-PARTY.txt /usr/share/doc/handoffd/
COPY --from=build /handoffd /handoffd-verify /usr/local/bin/
# Its user's alone, so that a volume mounted here starts out writable, and closed to others. Its parent is copied, because COPY makes
# the folder that it copies into with mode 755.
COPY --from=build --chown=65532:65532 /data /var/lib
# The allocator gives back what the start used: 12 MB of an idle broker's (docs/decisions/0016-size.md).
ENV HANDOFFD_LISTEN=0.0.0.0:8080 \
    HANDOFFD_DATA_DIR=/var/lib/handoffd \
    MIMALLOC_PURGE_DELAY=0
EXPOSE 8080
VOLUME /var/lib/handoffd
USER 65532:65532
HEALTHCHECK --interval=10s --timeout=5s --start-period=10s --retries=3 \
    CMD ["/usr/local/bin/handoffd", "healthcheck"]
ENTRYPOINT ["/usr/local/bin/handoffd"]
CMD ["serve"]
