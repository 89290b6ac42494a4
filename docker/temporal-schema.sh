#!/bin/sh
# Makes or updates the databases of the Temporal server. May run again at any time.
set -eu

tool() {
  temporal-sql-tool --plugin postgres12 --ep "$POSTGRES_SEEDS" --port "${DB_PORT:-5432}" \
    --user "$POSTGRES_USER" --password "$POSTGRES_PWD" --db "$@"
}

for kind in temporal visibility; do
  database=temporal
  if [ "$kind" = visibility ]; then database=temporal_visibility; fi
  tool "$database" create
  # Fails where the version table is there already, which is as good.
  tool "$database" setup-schema -v 0.0 || true
  # The schemas that the tool itself contains.
  tool "$database" update-schema --schema-name "postgresql/v12/$kind"
done
