import { ActionIcon, Box, Code, Group, Text, TextInput, Tooltip } from "@mantine/core";
import { useForm } from "@mantine/form";
import { useDisclosure } from "@mantine/hooks";
import { IconApps, IconPlus, IconTrash } from "@tabler/icons-react";
import { useState } from "react";
import { type ApiKey, ApiKeyService, type InstalledApp } from "../../../../gen/webhook/v1/api_key_pb.ts";
import { PAGE_PATHS } from "../../../../src/contract/page-paths.ts";
import { useAllPages, useChange } from "../../api/queries.ts";
import { useIsLimited, useMay } from "../../api/session.tsx";
import { ConfirmDialog, type DialogProps, FormButton, SaveForm } from "../../parts/dialogs.tsx";
import { Failure, Loading } from "../../parts/failure.tsx";
import { SearchField } from "../../parts/filters.tsx";
import { useFocusBack } from "../../parts/focus.ts";
import { Dimmed, listPage, PageLink } from "../../parts/inline.tsx";
import { Listing } from "../../parts/listing.tsx";
import { Empty, NothingFound, Some } from "../../parts/lists.tsx";
import { PageTitle } from "../../parts/page.tsx";
import { notifyDone, useSave } from "../../parts/save.ts";
import { CopyButton } from "../../parts/text/copy.tsx";
import { countOf } from "../../parts/text/words.ts";
import { Time } from "../../parts/time.tsx";
import { useUrlFilters } from "../../parts/url-filters.ts";

/** The interval between refreshes, in milliseconds. */
const REFRESH_MS = 30_000;
const FILTERS = ["search"] as const;
/** The maximum length of a name, in characters. */
const MAX_CHARACTERS = 100;

/** The apps that keys belong to. */
export default function AppsPage() {
  const list = useAllPages(ApiKeyService.method.listInstalledApps, {}, { refreshMs: REFRESH_MS });
  const keys = useAllPages(ApiKeyService.method.listApiKeys, {}, { refreshMs: REFRESH_MS });
  const [removing, remove] = useDisclosure();
  const [app, setApp] = useState<InstalledApp>();
  const isLimited = useIsLimited();
  const apps = list.data?.installedApps;
  useFocusBack(removing);

  function askToRemove(about: InstalledApp) {
    setApp(about);
    remove.open();
  }

  return (
    <>
      <PageTitle
        title="Installed apps"
        compact
        description="Applications that integrators install. Each has its own API keys."
        // Always in this place: a button that moved once the list is read could be missed.
        actions={
          !isLimited && (
            <FormButton
              variant="filled"
              leftSection={<IconPlus size={16} />}
              title="New installed app"
              form={(close) => <CreateApp onClose={close} />}
            >
              New app
            </FormButton>
          )
        }
      />
      <Failure error={list.error} title="Could not load the apps" onRetry={list.refetch} my="sm" />
      {apps === undefined ? (
        list.isPending && <Loading lines={6} height={40} />
      ) : apps.length === 0 ? (
        <NoApps />
      ) : (
        <FoundApps apps={apps} keys={keys.data?.apiKeys} onRemove={isLimited ? undefined : askToRemove} />
      )}
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

/** Installed apps, with the number of keys of each that work. */
interface FoundAppsProps {
  apps: readonly InstalledApp[];
  /** Undefined while they are not known. */
  keys: readonly ApiKey[] | undefined;
  /** Undefined where the session may not remove apps. */
  onRemove: ((app: InstalledApp) => void) | undefined;
}

function FoundApps({ apps, keys, onRemove }: FoundAppsProps) {
  const [{ search }, change] = useUrlFilters(FILTERS);
  const reads = useMay("Read_Administrative_Data");
  const wanted = search.trim().toLowerCase();
  const found = apps
    .filter(({ id, name }) => name.toLowerCase().includes(wanted) || id.startsWith(wanted))
    .reverse();
  const working = keys?.filter(({ revoked }) => !revoked);
  const counts = working && Map.groupBy(working, (key) => key.installedApplicationId);
  const name = (app: InstalledApp) => (
    <Text size="sm" fw={600} style={{ overflowWrap: "anywhere" }}>
      {app.name}
    </Text>
  );
  const id = (app: InstalledApp) => (
    <Group gap={4} wrap="nowrap">
      <Text span ff="monospace" size="xs">
        {app.id}
      </Text>
      <CopyButton value={app.id} of={`the id of ${app.name}`} />
    </Group>
  );
  const keysOf = ({ id }: InstalledApp) => (
    <PageLink to={listPage(PAGE_PATHS.keys, { app: id })} style={{ whiteSpace: "nowrap" }}>
      {counts ? keysInWords(counts.get(id)?.length ?? 0) : "Keys"}
    </PageLink>
  );
  const webhooksOf = ({ id, name }: InstalledApp) => (
    <PageLink to={listPage(PAGE_PATHS.webhooks, { application: id })} aria-label={`Webhooks of ${name}`}>
      Webhooks
    </PageLink>
  );
  const remove = (app: InstalledApp) =>
    onRemove && (
      <Tooltip label={`Remove ${app.name}`} withArrow>
        <ActionIcon
          variant="subtle"
          color="gray"
          size="sm"
          aria-label={`Remove ${app.name}`}
          onClick={() => onRemove(app)}
        >
          <IconTrash size={16} />
        </ActionIcon>
      </Tooltip>
    );
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
      <Some
        items={found}
        of={["app", "apps"]}
        empty={
          <NothingFound of="app" onClear={() => change({ search: "" })}>
            No app has “{search.trim()}” in its name or at the start of its id.
          </NothingFound>
        }
      >
        {(shown) => (
          <Listing
            aria-label="Installed apps"
            items={shown}
            isFixed
            minWidth={640}
            columns={[
              { name: "Name", cell: name },
              { name: "Id", w: 320, cell: id },
              { name: "Keys", w: 110, cell: keysOf },
              reads && { name: "Webhooks", w: 110, cell: webhooksOf },
              { name: "Created", w: 120, cell: ({ created }) => <Time value={created} relative /> },
              { name: "Actions", head: null, w: 52, cell: remove },
            ]}
            cardsBelow="md"
            card={(app) => (
              <>
                <Group justify="space-between" align="flex-start" gap="sm" wrap="nowrap">
                  {name(app)}
                  {remove(app)}
                </Group>
                {id(app)}
                <Group justify="space-between" gap="sm">
                  {keysOf(app)}
                  {reads && webhooksOf(app)}
                  <Dimmed>
                    <Time value={app.created} />
                  </Dimmed>
                </Group>
              </>
            )}
          />
        )}
      </Some>
    </>
  );
}

const keysInWords = (count: number) => (count === 0 ? "No keys yet" : countOf(count, "key", "keys"));

/** The form of a new installed app. */
function CreateApp({ onClose }: { onClose: () => void }) {
  const create = useChange(ApiKeyService.method.createInstalledApp, ApiKeyService.method.listInstalledApps);
  const form = useForm({
    initialValues: { name: "" },
    validate: { name: (name) => (name.trim() === "" ? "Enter the app’s name" : null) },
  });
  const saving = useSave(form);

  const submit = form.onSubmit(async (values) => {
    const name = values.name.trim();
    if (!(await saving.save(() => create({ name })))) return;
    notifyDone(`The app “${name}” is created`);
    onClose();
  });

  return (
    <SaveForm
      saving={saving}
      onSubmit={submit}
      onCancel={onClose}
      submit="Create app"
      failed="The app was not created"
    >
      <TextInput
        {...form.getInputProps("name")}
        label="Name"
        description="The name integrators know. It cannot be changed later."
        maxLength={MAX_CHARACTERS}
        autoComplete="off"
        withAsterisk
        data-autofocus
      />
    </SaveForm>
  );
}

/** Removes an installed app for good. @param app the app; the one before while the dialog is closed */
function RemoveApp({ app, ...dialog }: DialogProps & { app: InstalledApp | undefined }) {
  const remove = useChange(ApiKeyService.method.deleteInstalledApp);
  return (
    <ConfirmDialog
      {...dialog}
      title={`Remove the app “${app?.name}”?`}
      confirm="Remove app"
      danger
      onConfirm={async () => {
        await remove({ installedApplicationId: app?.id ?? "" });
        notifyDone(`The app “${app?.name}” is removed`);
      }}
    >
      <Text size="sm">
        An app can be removed once all its API keys are revoked and removed and its webhooks are deleted. The
        log of deliveries stays. This cannot be undone.
      </Text>
    </ConfirmDialog>
  );
}
