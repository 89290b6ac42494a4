#!/bin/sh
# Makes or updates the databases of the Temporal server. May run again at any time.
set -eu

tool() {
  temporal-sql-tool --plugin postgres12 --ep "$POSTGRES_SEEDS" --port 5432 \
    --user "$POSTGRES_USER" --password "$POSTGRES_PWD" --db "$@"
}

for kind in temporal visibility; do
  database=temporal
  if [ "$kind" = visibility ]; then database=temporal_visibility; fi
  tool "$database" create
  # Fails where the version table is there already, which is as good.
  tool "$database" setup-schema -v 0.0 || true
  tool "$database" update-schema -d "/etc/temporal/schema/postgresql/v12/$kind/versioned"
done
