import { Button } from "@mantine/core";
import { IconKey } from "@tabler/icons-react";
import type { ApiKey, InstalledApp } from "../../../../../gen/webhook/v1/api_key_pb.ts";
import { Empty } from "../../../parts/lists/empty.tsx";
import { LoadMore } from "../../../parts/lists/load-more.tsx";
import { NothingFound } from "../../../parts/lists/nothing-found.tsx";
import { useSome } from "../../../parts/lists/use-some.ts";
import { filterKeys, type KeyFilterValues } from "./key-filters.tsx";
import { KeyList, type KeyListProps } from "./key-list.tsx";

/** The keys that the filters leave, and what to do where they leave none. */
export interface FilteredKeysProps extends Omit<KeyListProps, "appName"> {
  apps: readonly InstalledApp[];
  filters: KeyFilterValues;
  onClear: () => void;
  onCreate: () => void;
}

/** Shows them, the newest first. */
export function FilteredKeys({ keys, apps, filters, onClear, onCreate, ...list }: FilteredKeysProps) {
  const found = filterKeys(keys, filters);
  const { shown, hasMore, onMore } = useSome(found);
  const names = new Map(apps.map(({ id, name }) => [id, name]));
  if (found.length === 0) {
    const app = filters.search || filters.state ? undefined : names.get(filters.app);
    return app === undefined ? (
      <NothingFound of="key" onClear={onClear}>
        {filters.state === "" ? "No active key" : filters.state === "revoked" ? "No revoked key" : "No key"}{" "}
        passes all of the filters.
      </NothingFound>
    ) : (
      <Empty
        icon={<IconKey />}
        title={`“${app}” has no key that works`}
        action={<Button onClick={onCreate}>New key for the app</Button>}
      >
        Create one: webhooks that are registered with it belong to the app.
      </Empty>
    );
  }
  const appName = (key: ApiKey) =>
    key.installedApplicationId && (names.get(key.installedApplicationId) ?? key.installedApplicationId);
  return (
    <>
      <KeyList {...list} keys={shown} appName={appName} />
      <LoadMore shown={shown.length} of={["key", "keys"]} hasMore={hasMore} loading={false} onMore={onMore} />
    </>
  );
}
