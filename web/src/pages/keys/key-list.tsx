import {
  ActionIcon,
  Badge,
  Button,
  Grid,
  Group,
  Input,
  SegmentedControl,
  Stack,
  Text,
  Tooltip,
} from "@mantine/core";
import { IconBan, IconGauge, IconKey, IconPencil, IconRefresh, IconTrash } from "@tabler/icons-react";
import type { ReactNode } from "react";
import type { ApiKey, InstalledApp } from "../../../../gen/webhook/v1/api_key_pb.ts";
import { permissionName } from "../../../../src/contract/permissions.ts";
import { isLimited } from "../../api/session.tsx";
import { processName } from "../../api/type-names.ts";
import { FilterSelect, SearchField, withChosen } from "../../parts/filters.tsx";
import { Dimmed } from "../../parts/inline.tsx";
import { Listing } from "../../parts/listing.tsx";
import { Empty, NothingFound, Some } from "../../parts/lists.tsx";
import { quotasInWords } from "../../parts/quotas.tsx";
import { Time } from "../../parts/time.tsx";
import { CustomerLink } from "../customers/chosen.tsx";
import { PERMISSIONS } from "./key-forms.tsx";

/** The filters of the page, as its address names them. */
export const KEY_FILTERS = ["search", "state", "app"] as const;

/** The values of the filters; "" if not set. */
type KeyFilterValues = Record<(typeof KEY_FILTERS)[number], string>;

const STATES = [
  { value: "", label: "Active" },
  { value: "revoked", label: "Revoked" },
  { value: "all", label: "All" },
];

/** A secret, and of it as much as lists show; the rest must not get into the page's address. */
const SECRET = /(whk_[\w-]{8})[\w-]*/g;

/** The keys that the filters leave, the newest first. */
function filterKeys(keys: readonly ApiKey[], { search, state, app }: KeyFilterValues): ApiKey[] {
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
  const choices = apps.map(({ id, name }) => ({ value: id, label: name }));
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
          <FilterSelect
            label="Installed app"
            placeholder="Any or none"
            data={withChosen(choices, filters.app)}
            value={filters.app}
            onChange={(app) => onChange({ app })}
            searchable
            clearLabel="Any installed app"
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

/** What can be done with a key. */
export type KeyAction = "rename" | "quotas" | "rotate" | "revoke" | "remove";

const ACTIONS = {
  rename: { text: "Rename", Icon: IconPencil, red: false, label: "Rename" },
  quotas: { text: "Quotas", Icon: IconGauge, red: false, label: "Change the quotas of" },
  rotate: { text: "Rotate", Icon: IconRefresh, red: false, label: "Rotate the secret of" },
  revoke: { text: "Revoke", Icon: IconBan, red: true, label: "Revoke" },
  remove: { text: "Remove", Icon: IconTrash, red: true, label: "Remove" },
} as const;

/** What a key that is signed in with can do with a key. */
function actionsOf(own: ApiKey | undefined, key: ApiKey): KeyAction[] {
  if (!mayManage(own, key)) return [];
  if (key.revoked) return ["remove"];
  // A limited key could lift its own quotas.
  return isLimited(own) ? ["rename", "rotate", "revoke"] : ["rename", "quotas", "rotate", "revoke"];
}

/** Keys, and the filters that some of them pass. */
export interface KeyListProps {
  keys: readonly ApiKey[];
  apps: readonly InstalledApp[];
  filters: KeyFilterValues;
  onClear: () => void;
  /** The key that is signed in with. */
  own: ApiKey | undefined;
  onCreate: () => void;
  onAct: (action: KeyAction, key: ApiKey) => void;
}

/** The keys that pass the filters, the newest first, and what can be done with each. */
export function KeyList({ keys, apps, filters, onClear, own, onCreate, onAct }: KeyListProps) {
  const names = new Map(apps.map(({ id, name }) => [id, name]));
  const appName = ({ installedApplicationId: id }: ApiKey) =>
    id === undefined ? "–" : (names.get(id) ?? id);
  const name = (key: ApiKey) => <KeyName apiKey={key} isOwn={key.id === own?.id} />;
  const lastUsed = (key: ApiKey) => <Time value={key.lastUsed} relative otherwise="Never" />;
  const hasCustomers = keys.some(({ customer }) => customer !== undefined);
  const customer = (key: ApiKey) => key.customer !== undefined && <CustomerLink id={key.customer} />;
  const permissions = (key: ApiKey) => (
    <>
      <KeyPermissions apiKey={key} />
      {key.quotas && <Dimmed size="xs">At most {quotasInWords(key.quotas)}</Dimmed>}
    </>
  );
  return (
    <Some
      items={filterKeys(keys, filters)}
      of={["key", "keys"]}
      empty={<NoKeys filters={filters} app={names.get(filters.app)} onClear={onClear} onCreate={onCreate} />}
    >
      {(shown) => (
        <Listing
          items={shown}
          minWidth={820}
          headProps={{ style: { whiteSpace: "nowrap" } }}
          columns={[
            { name: "Key", w: "25%", miw: 140, cell: name },
            { name: "Permissions", miw: 130, cell: permissions },
            { name: "Event types", cell: (key) => <KeyEvents apiKey={key} /> },
            { name: "Installed app", miw: 130, cell: (key) => <span style={BREAKABLE}>{appName(key)}</span> },
            hasCustomers && { name: "Customer", cell: customer },
            { name: "Created", cell: ({ created }) => <Time value={created} relative /> },
            { name: "Last used", cell: lastUsed },
            {
              name: "Actions",
              head: null,
              w: 148,
              cell: (key) => <IconActions own={own} of={key} onAct={onAct} />,
            },
          ]}
          cardsBelow="lg"
          // As many beside each other as have room.
          cards={{
            display: "grid",
            style: { gridTemplateColumns: "repeat(auto-fill, minmax(min(100%, 300px), 1fr))" },
          }}
          cardGap="sm"
          card={(key) => (
            <>
              {name(key)}
              {permissions(key)}
              <Fact name="Event types">
                <KeyEvents apiKey={key} />
              </Fact>
              <Fact name="Installed app">{appName(key)}</Fact>
              {key.customer !== undefined && <Fact name="Customer">{customer(key)}</Fact>}
              <Fact name="Created">
                <Time value={key.created} />
              </Fact>
              <Fact name="Last used">{lastUsed(key)}</Fact>
              <ButtonActions own={own} of={key} onAct={onAct} />
            </>
          )}
        />
      )}
    </Some>
  );
}

const BREAKABLE = { overflowWrap: "anywhere" } as const;

/** Stands where no key passes the filters. @param app the name of the app that they name */
function NoKeys(props: Pick<KeyListProps, "filters" | "onClear" | "onCreate"> & { app: string | undefined }) {
  const { filters, app, onClear, onCreate } = props;
  if (app === undefined || filters.search || filters.state) {
    return (
      <NothingFound of="key" onClear={onClear}>
        {filters.state === "" ? "No active key" : filters.state === "revoked" ? "No revoked key" : "No key"}{" "}
        passes all of the filters.
      </NothingFound>
    );
  }
  return (
    <Empty
      icon={<IconKey />}
      title={`“${app}” has no key that works`}
      action={<Button onClick={onCreate}>New key for the app</Button>}
    >
      Create one: webhooks that are registered with it belong to the app.
    </Empty>
  );
}

type ActionsProps = Pick<KeyListProps, "own" | "onAct"> & { of: ApiKey };

function IconActions({ own, of: key, onAct }: ActionsProps) {
  return (
    <Group gap={4} wrap="nowrap" justify="flex-end">
      {actionsOf(own, key).map((action) => {
        const { Icon, red, label: what } = ACTIONS[action];
        const label = `${what} ${key.name}`;
        return (
          <Tooltip key={action} label={label} withArrow>
            <ActionIcon
              variant="subtle"
              color={red ? "red" : "gray"}
              aria-label={label}
              onClick={() => onAct(action, key)}
            >
              <Icon size={18} />
            </ActionIcon>
          </Tooltip>
        );
      })}
    </Group>
  );
}

function ButtonActions({ own, of: key, onAct }: ActionsProps) {
  const actions = actionsOf(own, key);
  if (actions.length === 0) return null;
  return (
    <Group gap="xs" grow>
      {actions.map((action) => {
        const { text, red, label } = ACTIONS[action];
        const look = red ? { variant: "light", color: "red" } : { variant: "default" };
        return (
          <Button
            key={action}
            {...look}
            aria-label={`${label} ${key.name}`}
            onClick={() => onAct(action, key)}
          >
            {text}
          </Button>
        );
      })}
    </Group>
  );
}

function Fact({ name, children }: { name: string; children: ReactNode }) {
  return (
    <Group gap="md" wrap="nowrap" align="flex-start" justify="space-between">
      <Dimmed style={{ flexShrink: 0 }}>{name}</Dimmed>
      <Text size="sm" ta="end" component="div" style={{ overflowWrap: "anywhere" }}>
        {children}
      </Text>
    </Group>
  );
}

/** The name of a key, with marks for special states. */
function KeyName({ apiKey, isOwn }: { apiKey: ApiKey; isOwn: boolean }) {
  return (
    <Stack gap={2} align="flex-start">
      <Text size="sm" fw={600} style={{ overflowWrap: "anywhere" }}>
        {apiKey.name}
      </Text>
      <Dimmed ff="monospace" size="xs">
        {apiKey.prefix}…
      </Dimmed>
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
        <Dimmed size="xs">
          An old secret works until <Time value={apiKey.oldSecretsExpire} />
        </Dimmed>
      )}
    </Stack>
  );
}

/** The permissions of a key. The tooltip of each shows its name in the contract and its meaning. */
function KeyPermissions({ apiKey }: { apiKey: ApiKey }) {
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

/** The event types that a key may subscribe to, one per line. */
function KeyEvents({ apiKey }: { apiKey: ApiKey }) {
  if (apiKey.allowedProcesses.length === 0) return <Dimmed>All</Dimmed>;
  return apiKey.allowedProcesses.map((process, index) => (
    <Text key={process} size="sm" style={{ overflowWrap: "break-word" }}>
      {processName(process, apiKey.allowedProcessNames[index])}
    </Text>
  ));
}

/**
 * Whether somebody who is signed in with a key can rotate, revoke and remove another key. A key of an installed app or of a
 * customer manages keys with at most its own rights; others manage all.
 */
function mayManage(own: ApiKey | undefined, key: ApiKey): boolean {
  if (!own || !isLimited(own)) return true;
  const { permissions, allowedProcesses: processes } = own;
  if (!key.permissions.every((each) => permissions.includes(each))) return false;
  if (processes.length === 0) return true;
  return key.allowedProcesses.length > 0 && key.allowedProcesses.every((each) => processes.includes(each));
}
