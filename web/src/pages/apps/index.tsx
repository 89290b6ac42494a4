import { Box, Button, Code } from "@mantine/core";
import { useDisclosure } from "@mantine/hooks";
import { IconApps, IconPlus } from "@tabler/icons-react";
import { useState } from "react";
import { type ApiKey, ApiKeyService, type InstalledApp } from "../../../../gen/webhook/v1/api_key_pb.ts";
import { useOwnApp } from "../../api/session.tsx";
import { useAllPages } from "../../api/use-all-pages.ts";
import { useFocusBack } from "../../parts/dialogs/use-focus-back.ts";
import { PageTitle } from "../../parts/layout/page-title.tsx";
import { Empty } from "../../parts/lists/empty.tsx";
import { LoadMore } from "../../parts/lists/load-more.tsx";
import { NothingFound } from "../../parts/lists/nothing-found.tsx";
import { SearchField } from "../../parts/lists/search-field.tsx";
import { useSome } from "../../parts/lists/use-some.ts";
import { useUrlFilters } from "../../parts/lists/use-url-filters.ts";
import { Failure } from "../../parts/status/failure.tsx";
import { Loading } from "../../parts/status/loading.tsx";
import { AppList, type AppListProps } from "./app-list.tsx";
import { CreateApp } from "./create-app.tsx";
import { RemoveApp } from "./remove-app.tsx";

/** The interval between refreshes, in milliseconds. */
const REFRESH_MS = 30_000;
const FILTERS = ["search"] as const;

/** The apps that keys belong to. */
export default function AppsPage() {
  const list = useAllPages(ApiKeyService.method.listInstalledApps, {}, { refreshMs: REFRESH_MS });
  const keys = useAllPages(ApiKeyService.method.listApiKeys, {}, { refreshMs: REFRESH_MS });
  const [creating, { open, close }] = useDisclosure();
  const [removing, remove] = useDisclosure();
  const [app, setApp] = useState<InstalledApp>();
  const isOfApp = useOwnApp() !== undefined;
  const apps = list.data?.installedApps;
  useFocusBack(creating || removing);

  return (
    <>
      <PageTitle
        title="Installed apps"
        compact
        description="Applications that integrators install. Each has its own API keys."
        // Always in this place: a button that moved once the list is read could be missed.
        actions={
          !isOfApp && (
            <Button leftSection={<IconPlus size={16} />} onClick={open}>
              New app
            </Button>
          )
        }
      />
      {list.isError && (
        <Failure
          error={list.error}
          title="Could not load the apps"
          onRetry={() => void list.refetch()}
          my="sm"
        />
      )}
      {apps === undefined ? (
        list.isPending && <Loading lines={6} height={40} />
      ) : apps.length === 0 ? (
        <NoApps />
      ) : (
        <FoundApps
          apps={apps}
          keys={keys.data?.apiKeys}
          onRemove={
            isOfApp
              ? undefined
              : (about) => {
                  setApp(about);
                  remove.open();
                }
          }
        />
      )}
      <CreateApp opened={creating} onClose={close} />
      <RemoveApp opened={removing} onClose={remove.close} app={app} />
    </>
  );
}

function NoApps() {
  return (
    <Empty icon={<IconApps />} title="No installed apps yet">
      Create an app for an application that registers webhooks for many users, and give it an API key.
      Webhooks registered with its keys carry its id as <Word>Application</Word>; their deliveries include the
      header <Word>X-Service-UserId</Word>, which names the user of the event.
    </Empty>
  );
}

/** A name that stays in one line. */
function Word({ children }: { children: string }) {
  return <Code style={{ whiteSpace: "nowrap" }}>{children}</Code>;
}

function FoundApps(props: {
  apps: readonly InstalledApp[];
  keys: readonly ApiKey[] | undefined;
  onRemove: AppListProps["onRemove"];
}) {
  const { apps, keys, onRemove } = props;
  const [{ search }, change] = useUrlFilters(FILTERS);
  const wanted = search.trim().toLowerCase();
  const found = apps
    .filter(({ id, name }) => name.toLowerCase().includes(wanted) || id.startsWith(wanted))
    .reverse();
  const { shown, hasMore, onMore } = useSome(found);
  const working = keys?.filter(({ revoked }) => !revoked);
  const counts = working && Map.groupBy(working, (key) => key.installedApplicationId);
  return (
    <>
      <Box maw={{ sm: 320 }} mb="xs">
        <SearchField
          label="Search apps"
          labelHidden
          placeholder="Name or id"
          value={search}
          onChange={(text) => change({ search: text }, { replace: true })}
        />
      </Box>
      {found.length === 0 ? (
        <NothingFound of="app" onClear={() => change({ search: "" })}>
          No app has “{search.trim()}” in its name or at the start of its id.
        </NothingFound>
      ) : (
        <>
          <AppList
            onRemove={onRemove}
            apps={shown}
            keysOf={counts && (({ id }) => counts.get(id)?.length ?? 0)}
          />
          <LoadMore
            shown={shown.length}
            of={["app", "apps"]}
            hasMore={hasMore}
            loading={false}
            onMore={onMore}
          />
        </>
      )}
    </>
  );
}
