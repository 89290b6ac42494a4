import { useMutation } from "@connectrpc/connect-query";
import {
  ActionIcon,
  Anchor,
  Box,
  Button,
  Card,
  Code,
  Group,
  Stack,
  Table,
  Text,
  TextInput,
  Tooltip,
  VisuallyHidden,
} from "@mantine/core";
import { useForm } from "@mantine/form";
import { useDisclosure } from "@mantine/hooks";
import { notifications } from "@mantine/notifications";
import { IconApps, IconPlus, IconTrash } from "@tabler/icons-react";
import { useState } from "react";
import { Link } from "react-router";
import { type ApiKey, ApiKeyService, type InstalledApp } from "../../../../gen/webhook/v1/api_key_pb.ts";
import { PAGE_PATHS } from "../../../../src/contract/page-paths.ts";
import { fieldFailures } from "../../api/failure.ts";
import { useAllPages, useReadAnew } from "../../api/queries.ts";
import { useMay, useOwnApp } from "../../api/session.tsx";
import { ConfirmDialog, FormActions, FormDialog } from "../../parts/dialogs.tsx";
import { Failure, Loading } from "../../parts/failure.tsx";
import { SearchField, useUrlFilters } from "../../parts/filters.tsx";
import { useFocusBack } from "../../parts/focus.ts";
import { useBelow } from "../../parts/listing.tsx";
import { Empty, LoadMore, NothingFound, useSome } from "../../parts/lists.tsx";
import { PageTitle } from "../../parts/page.tsx";
import { CopyButton } from "../../parts/text/copy.tsx";
import { countOf } from "../../parts/text/words.ts";
import { Time } from "../../parts/time.tsx";

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

/** Installed apps, and how many keys of each work; undefined while that is not known. */
export interface AppListProps {
  apps: readonly InstalledApp[];
  keysOf: ((app: InstalledApp) => number) | undefined;
  /** Undefined where the session may not remove apps. */
  onRemove: ((app: InstalledApp) => void) | undefined;
}

/** A table of apps; cards where there is no room for one. */
export function AppList(props: AppListProps) {
  return useBelow("md") ? <AppCards {...props} /> : <AppTable {...props} />;
}

function AppTable({ apps, keysOf, onRemove }: AppListProps) {
  const reads = useMay("Read_Administrative_Data");
  return (
    <Table.ScrollContainer minWidth={640}>
      <Table layout="fixed" highlightOnHover aria-label="Installed apps">
        <Table.Thead>
          <Table.Tr>
            <Table.Th>Name</Table.Th>
            <Table.Th w={320}>Id</Table.Th>
            <Table.Th w={110}>Keys</Table.Th>
            {reads && <Table.Th w={110}>Webhooks</Table.Th>}
            <Table.Th w={120}>Created</Table.Th>
            <Table.Th w={52}>
              <VisuallyHidden>Actions</VisuallyHidden>
            </Table.Th>
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {apps.map((app) => (
            <Table.Tr key={app.id}>
              <Table.Td>
                <Text size="sm" fw={600} style={{ overflowWrap: "anywhere" }}>
                  {app.name}
                </Text>
              </Table.Td>
              <Table.Td>
                <AppId app={app} />
              </Table.Td>
              <Table.Td>
                <AppKeys app={app} keysOf={keysOf} />
              </Table.Td>
              {reads && (
                <Table.Td>
                  <AppWebhooks app={app} />
                </Table.Td>
              )}
              <Table.Td>
                <Time value={app.created} relative />
              </Table.Td>
              <Table.Td>
                <Remove app={app} onRemove={onRemove} />
              </Table.Td>
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
    </Table.ScrollContainer>
  );
}

function AppCards({ apps, keysOf, onRemove }: AppListProps) {
  const reads = useMay("Read_Administrative_Data");
  return (
    <Stack component="ul" p={0} m={0} gap="sm">
      {apps.map((app) => (
        <Card key={app.id} component="li" withBorder padding="md">
          <Stack gap="xs">
            <Group justify="space-between" align="flex-start" gap="sm" wrap="nowrap">
              <Text size="sm" fw={600} style={{ overflowWrap: "anywhere" }}>
                {app.name}
              </Text>
              <Remove app={app} onRemove={onRemove} />
            </Group>
            <AppId app={app} />
            <Group justify="space-between" gap="sm">
              <AppKeys app={app} keysOf={keysOf} />
              {reads && <AppWebhooks app={app} />}
              <Text size="sm" c="dimmed">
                <Time value={app.created} />
              </Text>
            </Group>
          </Stack>
        </Card>
      ))}
    </Stack>
  );
}

function Remove({ app, onRemove }: { app: InstalledApp; onRemove: AppListProps["onRemove"] }) {
  if (!onRemove) return null;
  const label = `Remove ${app.name}`;
  return (
    <Tooltip label={label} withArrow>
      <ActionIcon variant="subtle" color="gray" size="sm" aria-label={label} onClick={() => onRemove(app)}>
        <IconTrash size={16} />
      </ActionIcon>
    </Tooltip>
  );
}

function AppId({ app }: { app: InstalledApp }) {
  return (
    <Group gap={4} wrap="nowrap">
      <Text span ff="monospace" size="xs">
        {app.id}
      </Text>
      <CopyButton value={app.id} of={`the id of ${app.name}`} />
    </Group>
  );
}

function AppKeys({ app, keysOf }: { app: InstalledApp; keysOf: AppListProps["keysOf"] }) {
  const count = keysOf?.(app);
  return (
    <Anchor
      component={Link}
      to={{ pathname: PAGE_PATHS.keys, search: new URLSearchParams({ app: app.id }).toString() }}
      size="sm"
      style={{ whiteSpace: "nowrap" }}
    >
      {count === undefined ? "Keys" : count === 0 ? "No keys yet" : countOf(count, "key", "keys")}
    </Anchor>
  );
}

/** Leads to the webhooks that were registered with the app's keys, and their health. */
function AppWebhooks({ app }: { app: InstalledApp }) {
  return (
    <Anchor
      component={Link}
      to={{ pathname: PAGE_PATHS.webhooks, search: new URLSearchParams({ application: app.id }).toString() }}
      size="sm"
      aria-label={`Webhooks of ${app.name}`}
    >
      Webhooks
    </Anchor>
  );
}

/** The maximum length of a name, in characters. */
const MAX_CHARACTERS = 100;

/** The form of a new installed app. */
export function CreateApp({ opened, onClose }: { opened: boolean; onClose: () => void }) {
  return (
    <FormDialog opened={opened} onClose={onClose} title="New installed app">
      <CreateAppForm onClose={onClose} />
    </FormDialog>
  );
}

function CreateAppForm({ onClose }: { onClose: () => void }) {
  const readAnew = useReadAnew();
  const create = useMutation(ApiKeyService.method.createInstalledApp);
  const [failure, setFailure] = useState<unknown>();
  const form = useForm({
    mode: "uncontrolled",
    initialValues: { name: "" },
    validate: { name: (name) => (name.trim() === "" ? "Enter the app’s name" : null) },
  });

  async function submit({ name }: { name: string }) {
    setFailure(undefined);
    try {
      await create.mutateAsync({ name: name.trim() });
    } catch (error) {
      const fields = fieldFailures(error);
      form.setErrors(fields);
      if (Object.keys(fields).length === 0) setFailure(error);
      return;
    }
    await readAnew(ApiKeyService.method.listInstalledApps);
    notifications.show({ color: "green", message: `The app “${name.trim()}” is created` });
    onClose();
  }

  return (
    <form onSubmit={form.onSubmit(submit)} noValidate>
      <Stack>
        <TextInput
          key={form.key("name")}
          {...form.getInputProps("name")}
          label="Name"
          description="The name integrators know. It cannot be changed later."
          maxLength={MAX_CHARACTERS}
          autoComplete="off"
          withAsterisk
          data-autofocus
        />
        {failure !== undefined && <Failure error={failure} title="The app was not created" />}
        <FormActions submit="Create app" busy={form.submitting} onCancel={onClose} />
      </Stack>
    </form>
  );
}

/** Asks before an app is removed. */
export interface RemoveAppProps {
  opened: boolean;
  onClose: () => void;
  /** The app; the one before while the dialog is closed. */
  app: InstalledApp | undefined;
}

/** Removes an installed app for good. */
export function RemoveApp({ opened, onClose, app }: RemoveAppProps) {
  const remove = useMutation(ApiKeyService.method.deleteInstalledApp);
  const readAnew = useReadAnew();
  return (
    <ConfirmDialog
      opened={opened}
      onClose={onClose}
      title={`Remove the app “${app?.name}”?`}
      confirm="Remove app"
      danger
      onConfirm={async () => {
        await remove.mutateAsync({ installedApplicationId: app?.id ?? "" });
        notifications.show({ color: "green", message: `The app “${app?.name}” is removed` });
        await readAnew(ApiKeyService);
      }}
    >
      <Text size="sm">
        An app can be removed once all its API keys are revoked and removed and its webhooks are deleted. The
        log of deliveries stays. This cannot be undone.
      </Text>
    </ConfirmDialog>
  );
}
