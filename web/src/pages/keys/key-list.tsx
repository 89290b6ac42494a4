import {
  ActionIcon,
  Badge,
  Box,
  Button,
  Card,
  Grid,
  Group,
  Input,
  SegmentedControl,
  Select,
  Stack,
  Table,
  Text,
  Tooltip,
  VisuallyHidden,
} from "@mantine/core";
import { IconBan, IconGauge, IconKey, IconRefresh, IconTrash } from "@tabler/icons-react";
import type { ReactNode } from "react";
import type { ApiKey, InstalledApp } from "../../../../gen/webhook/v1/api_key_pb.ts";
import { processName } from "../../../../src/contract/catalogue.ts";
import { permissionName } from "../../../../src/contract/permissions.ts";
import { clearButton, SearchField, withChosen } from "../../parts/filters.tsx";
import { useBelow } from "../../parts/listing.tsx";
import { Empty, LoadMore, NothingFound, useSome } from "../../parts/lists.tsx";
import { countOf } from "../../parts/text/words.ts";
import { Time } from "../../parts/time.tsx";
import { PERMISSIONS } from "./key-forms.tsx";

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

/** The filters of the page, as its address names them. */
export const KEY_FILTERS = ["search", "state", "app"] as const;

/** The values of the filters; "" if not set. */
export type KeyFilterValues = Record<(typeof KEY_FILTERS)[number], string>;

const STATES = [
  { value: "", label: "Active" },
  { value: "revoked", label: "Revoked" },
  { value: "all", label: "All" },
];

/** A secret, and of it as much as lists show; the rest must not get into the page's address. */
const SECRET = /(whk_[\w-]{8})[\w-]*/g;

/** The keys that the filters leave, the newest first. */
export function filterKeys(keys: readonly ApiKey[], { search, state, app }: KeyFilterValues): ApiKey[] {
  const wanted = search.trim().toLowerCase();
  return keys
    .filter((key) => {
      if (state !== "all" && (key.revoked !== undefined) !== (state === "revoked")) return false;
      if (app && key.installedApplicationId !== app) return false;
      return [key.name, key.prefix, key.id].some((text) => text.toLowerCase().includes(wanted));
    })
    .reverse();
}

/** Chooses which keys are shown. */
export function KeyFilters(props: {
  filters: KeyFilterValues;
  apps: readonly InstalledApp[];
  onChange: (changes: Partial<KeyFilterValues>, options?: { replace?: boolean }) => void;
}) {
  const { filters, apps, onChange } = props;
  return (
    <Grid gap="md" mb="md" align="flex-end">
      <Grid.Col span={{ base: 12, sm: 6, lg: 4 }}>
        <SearchField
          label="Search keys"
          placeholder="Name, prefix or id"
          value={filters.search}
          onChange={(text) => onChange({ search: text.replaceAll(SECRET, "$1") }, { replace: true })}
        />
      </Grid.Col>
      {(apps.length > 0 || filters.app !== "") && (
        <Grid.Col span={{ base: 12, sm: 6, lg: 4 }}>
          <Select
            label="Installed app"
            placeholder="Any or none"
            data={withChosen(
              apps.map(({ id, name }) => ({ value: id, label: name })),
              filters.app,
            )}
            value={filters.app || null}
            onChange={(app) => onChange({ app: app ?? "" })}
            searchable
            clearable
            clearButtonProps={clearButton("Any installed app")}
            nothingFoundMessage="No such app"
          />
        </Grid.Col>
      )}
      <Grid.Col span={{ base: 12, sm: "content" }}>
        <Input.Wrapper label="State" labelElement="div">
          <SegmentedControl
            fullWidth
            aria-label="State"
            data={STATES}
            value={STATES.some(({ value }) => value === filters.state) ? filters.state : ""}
            onChange={(state) => onChange({ state })}
          />
        </Input.Wrapper>
      </Grid.Col>
    </Grid>
  );
}

/** Keys, and what can be done with each. */
export interface KeyListProps {
  keys: readonly ApiKey[];
  /** The key that is signed in with. */
  own: ApiKey | undefined;
  /** The name of the installed app of a key. */
  appName: (key: ApiKey) => string | undefined;
  onQuotas: (key: ApiKey) => void;
  onRotate: (key: ApiKey) => void;
  onRevoke: (key: ApiKey) => void;
  /** Removes a revoked key. */
  onRemove: (key: ApiKey) => void;
}

/** A table of keys; cards where there is no room for one. */
export function KeyList(props: KeyListProps) {
  return useBelow("lg") ? <KeyCards {...props} /> : <KeyTable {...props} />;
}

function KeyTable({ keys, own, appName, onQuotas, onRotate, onRevoke, onRemove }: KeyListProps) {
  return (
    <Table.ScrollContainer minWidth={820}>
      <Table highlightOnHover>
        <Table.Thead style={{ whiteSpace: "nowrap" }}>
          <Table.Tr>
            <Table.Th w="25%" miw={140}>
              Key
            </Table.Th>
            <Table.Th miw={130}>Permissions</Table.Th>
            <Table.Th>Event types</Table.Th>
            <Table.Th miw={130}>Installed app</Table.Th>
            <Table.Th>Created</Table.Th>
            <Table.Th>Last used</Table.Th>
            <Table.Th w={116}>
              <VisuallyHidden>Actions</VisuallyHidden>
            </Table.Th>
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {keys.map((key) => (
            <Table.Tr key={key.id}>
              <Table.Td>
                <KeyName apiKey={key} isOwn={key.id === own?.id} />
              </Table.Td>
              <Table.Td>
                <KeyPermissions apiKey={key} />
                <KeyQuotas apiKey={key} />
              </Table.Td>
              <Table.Td>
                <KeyEvents apiKey={key} />
              </Table.Td>
              <Table.Td style={{ overflowWrap: "anywhere" }}>{appName(key) ?? "–"}</Table.Td>
              <Table.Td>
                <Time value={key.created} relative />
              </Table.Td>
              <Table.Td>
                <Time value={key.lastUsed} relative otherwise="Never" />
              </Table.Td>
              <Table.Td>
                {key.revoked && mayManage(own, key) && (
                  <Group justify="flex-end">
                    <IconAction label={`Remove ${key.name}`} color="red" onClick={() => onRemove(key)}>
                      <IconTrash size={18} />
                    </IconAction>
                  </Group>
                )}
                {!key.revoked && mayManage(own, key) && (
                  <Group gap={4} wrap="nowrap" justify="flex-end">
                    {maySetQuotas(own) && (
                      <IconAction label={`Change the quotas of ${key.name}`} onClick={() => onQuotas(key)}>
                        <IconGauge size={18} />
                      </IconAction>
                    )}
                    <IconAction label={`Rotate the secret of ${key.name}`} onClick={() => onRotate(key)}>
                      <IconRefresh size={18} />
                    </IconAction>
                    <IconAction label={`Revoke ${key.name}`} color="red" onClick={() => onRevoke(key)}>
                      <IconBan size={18} />
                    </IconAction>
                  </Group>
                )}
              </Table.Td>
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
    </Table.ScrollContainer>
  );
}

function IconAction(props: { label: string; color?: string; onClick: () => void; children: ReactNode }) {
  const { label, color = "gray", onClick, children } = props;
  return (
    <Tooltip label={label} withArrow>
      <ActionIcon variant="subtle" color={color} aria-label={label} onClick={onClick}>
        {children}
      </ActionIcon>
    </Tooltip>
  );
}

function KeyCards({ keys, own, appName, onQuotas, onRotate, onRevoke, onRemove }: KeyListProps) {
  return (
    <Box
      component="ul"
      display="grid"
      p={0}
      m={0}
      style={{
        gap: "var(--mantine-spacing-sm)",
        // As many beside each other as have room.
        gridTemplateColumns: "repeat(auto-fill, minmax(min(100%, 300px), 1fr))",
      }}
    >
      {keys.map((key) => (
        <Card key={key.id} component="li" withBorder padding="md">
          <Stack gap="sm">
            <KeyName apiKey={key} isOwn={key.id === own?.id} />
            <KeyPermissions apiKey={key} />
            <KeyQuotas apiKey={key} />
            <Fact name="Event types">
              <KeyEvents apiKey={key} />
            </Fact>
            <Fact name="Installed app">{appName(key) ?? "–"}</Fact>
            <Fact name="Created">
              <Time value={key.created} />
            </Fact>
            <Fact name="Last used">
              <Time value={key.lastUsed} relative otherwise="Never" />
            </Fact>
            {key.revoked && mayManage(own, key) && (
              <Button
                size="xs"
                variant="light"
                color="red"
                aria-label={`Remove ${key.name}`}
                onClick={() => onRemove(key)}
              >
                Remove
              </Button>
            )}
            {!key.revoked && mayManage(own, key) && (
              <Group gap="xs" grow>
                {maySetQuotas(own) && (
                  <Button
                    size="xs"
                    variant="default"
                    aria-label={`Change the quotas of ${key.name}`}
                    onClick={() => onQuotas(key)}
                  >
                    Quotas
                  </Button>
                )}
                <Button
                  size="xs"
                  variant="default"
                  aria-label={`Rotate the secret of ${key.name}`}
                  onClick={() => onRotate(key)}
                >
                  Rotate
                </Button>
                <Button
                  size="xs"
                  variant="light"
                  color="red"
                  aria-label={`Revoke ${key.name}`}
                  onClick={() => onRevoke(key)}
                >
                  Revoke
                </Button>
              </Group>
            )}
          </Stack>
        </Card>
      ))}
    </Box>
  );
}

function Fact({ name, children }: { name: string; children: ReactNode }) {
  return (
    <Group gap="md" wrap="nowrap" align="flex-start" justify="space-between">
      <Text size="sm" c="dimmed" style={{ flexShrink: 0 }}>
        {name}
      </Text>
      <Text size="sm" ta="end" component="div" style={{ overflowWrap: "anywhere" }}>
        {children}
      </Text>
    </Group>
  );
}

/** The name of a key, with marks for special states. */
export function KeyName({ apiKey, isOwn }: { apiKey: ApiKey; isOwn: boolean }) {
  return (
    <Stack gap={2} align="flex-start">
      <Text size="sm" fw={600} style={{ overflowWrap: "anywhere" }}>
        {apiKey.name}
      </Text>
      <Text ff="monospace" size="xs" c="dimmed">
        {apiKey.prefix}…
      </Text>
      {isOwn && (
        <Badge variant="light" tt="none" size="sm">
          Signed in with this key
        </Badge>
      )}
      {apiKey.revoked && (
        <Badge variant="light" tt="none" size="sm" color="red">
          Revoked <Time value={apiKey.revoked} relative />
        </Badge>
      )}
      {apiKey.oldSecretsExpire && (
        <Text size="xs" c="dimmed">
          An old secret works until <Time value={apiKey.oldSecretsExpire} />
        </Text>
      )}
    </Stack>
  );
}

/** The permissions of a key. The tooltip of each shows its name in the contract and its meaning. */
export function KeyPermissions({ apiKey }: { apiKey: ApiKey }) {
  return (
    <Group gap="0 10px">
      {apiKey.permissions.map((permission) => {
        const told = PERMISSIONS.find((each) => each.permission === permission);
        const name = permissionName(permission);
        return (
          <Text key={permission} size="sm" title={told ? `${name}: ${told.meaning}` : name}>
            {told?.label ?? name}
          </Text>
        );
      })}
    </Group>
  );
}

/** The quotas of a key, if it has any. */
export function KeyQuotas({ apiKey: { quotas } }: { apiKey: ApiKey }) {
  if (!quotas) return null;
  const { webhooks, eventsPerSecond } = quotas;
  const limits = [
    ...(webhooks > 0 ? [countOf(webhooks, "webhook", "webhooks")] : []),
    ...(eventsPerSecond > 0 ? [`${countOf(eventsPerSecond, "event", "events")}/s`] : []),
  ];
  return (
    <Text size="xs" c="dimmed">
      At most {limits.join(", ")}
    </Text>
  );
}

/** The event types that a key may subscribe to, one per line. */
export function KeyEvents({ apiKey }: { apiKey: ApiKey }) {
  if (apiKey.allowedProcesses.length === 0)
    return (
      <Text size="sm" c="dimmed">
        All
      </Text>
    );
  return apiKey.allowedProcesses.map((process) => (
    <Text key={process} size="sm" style={{ overflowWrap: "break-word" }}>
      {processName(process)}
    </Text>
  ));
}

/**
 * Whether somebody who is signed in with a key can rotate, revoke and remove another key. A key of an installed app
 * manages keys with at most its own rights; a key without an app manages all.
 */
export function mayManage(own: ApiKey | undefined, key: ApiKey): boolean {
  if (own?.installedApplicationId === undefined) return true;
  const { permissions, allowedProcesses: processes } = own;
  if (!key.permissions.every((each) => permissions.includes(each))) return false;
  if (processes.length === 0) return true;
  return key.allowedProcesses.length > 0 && key.allowedProcesses.every((each) => processes.includes(each));
}

/** Whether somebody who is signed in with a key can change quotas: a key of an installed app could lift its own. */
export function maySetQuotas(own: ApiKey | undefined): boolean {
  return own?.installedApplicationId === undefined;
}
