import { ConnectError, Code as ErrorCode } from "@connectrpc/connect";
import { useMutation, useQuery } from "@connectrpc/connect-query";
import { Alert, Code, type ComboboxItem, List, Radio, Select, Stack, Text } from "@mantine/core";
import { IconAlertTriangle } from "@tabler/icons-react";
import {
  type ApiKey,
  ApiKeyService,
  type RevokeApiKeyResponse,
} from "../../../../gen/webhook/v1/api_key_pb.ts";
import { Permission } from "../../../../gen/webhook/v1/options_pb.ts";
import { type Webhook, WebhookService } from "../../../../gen/webhook/v1/webhook_pb.ts";
import { useChange } from "../../api/queries.ts";
import { useMay } from "../../api/session.tsx";
import { processName, typeName } from "../../api/type-names.ts";
import { ConfirmDialog, type DialogProps, useDialogState } from "../../parts/dialogs.tsx";
import { Failure, Loading } from "../../parts/failure.tsx";
import { notifyDone } from "../../parts/save.ts";
import { countOf } from "../../parts/text/words.ts";

type Fate = "transfer" | "delete";

/** The number of a key's newest webhooks that are read. New ones are among them. */
const READ = 200;

/** Asks what becomes of a key that is to be revoked. */
export interface RevokeKeyProps extends DialogProps {
  /** The key; the one before while the dialog is closed. */
  apiKey: ApiKey | undefined;
  /** All there are, to give its webhooks to. */
  keys: readonly ApiKey[];
  isOwn: boolean;
  onRevoked: (done: RevokeApiKeyResponse) => Promise<void>;
}

/** Revokes a key after a choice about its webhooks. */
export function RevokeKey({ opened, onClose, apiKey, keys, isOwn, onRevoked }: RevokeKeyProps) {
  const revoke = useMutation(ApiKeyService.method.revokeApiKey);
  const maySee = useMay("Read_Administrative_Data");
  const list = useQuery(
    WebhookService.method.searchWebhooks,
    { apiKeyId: apiKey?.id ?? "", pageSize: READ },
    { enabled: opened && maySee, structuralSharing: false },
  );
  const [fate, setFate] = useDialogState<Fate | undefined>(opened, undefined);
  const [heir, setHeir] = useDialogState<string | null>(opened, null);
  const webhooks = list.data?.webhooks;
  const hasNone = webhooks?.length === 0;
  const heirs = heirsOf(apiKey, keys, webhooks ?? []);
  const told = fate === "delete" || (fate === "transfer" && heir !== null);
  // Without the permission nobody can say whether there are any.
  const asks = maySee ? webhooks !== undefined && !hasNone : true;
  const ready = !list.isFetching && (hasNone || (asks && told));

  /** Refuses to delete webhooks that were registered after the dialog listed the others. */
  async function assertAllShown(shown: readonly Webhook[]) {
    const { data } = await list.refetch({ throwOnError: true });
    const ids = new Set(shown.map(({ id }) => id));
    if (data?.webhooks.every(({ id }) => ids.has(id))) return;
    throw new ConnectError(
      "the key has registered a webhook meanwhile; choose what happens to its webhooks, then confirm again",
      ErrorCode.Aborted,
    );
  }

  async function run() {
    const transferTo = hasNone || fate === "delete" ? null : heir;
    if (webhooks && transferTo === null) await assertAllShown(webhooks);
    const done = await revoke.mutateAsync({
      apiKeyId: apiKey?.id ?? "",
      webhooks:
        transferTo === null
          ? { case: "deleteWebhooks", value: {} }
          : { case: "transferToKeyId", value: transferTo },
    });
    await onRevoked(done);
  }

  return (
    <ConfirmDialog
      opened={opened}
      onClose={onClose}
      title={`Revoke the key “${apiKey?.name}”?`}
      confirm="Revoke key"
      danger
      ready={ready}
      onConfirm={run}
    >
      <Text size="sm">
        All calls with this key are refused immediately. This cannot be undone.
        {isOwn && " You are signed in with this key: revoking it signs you out."}
      </Text>
      {isLastManager(apiKey, keys) && (
        <Alert color="yellow" icon={<IconAlertTriangle />} title="No other key manages keys">
          Without this key nobody can create keys on this page. Create another one first, or run{" "}
          <Code>npm run admin-key</Code> on the server later.
        </Alert>
      )}
      {!maySee ? (
        <Text size="sm">Your key does not have permission to list its webhooks.</Text>
      ) : list.isError ? (
        <Failure error={list.error} title="Could not load its webhooks" onRetry={list.refetch} />
      ) : webhooks === undefined ? (
        <Loading lines={3} />
      ) : (
        <KeyWebhooks webhooks={webhooks} found={list.data?.found ?? 0} />
      )}
      {asks && (
        <Radio.Group
          label="What happens to its webhooks?"
          value={fate ?? null}
          onChange={(value) => setFate(value as Fate)}
        >
          <Stack gap="sm" mt="xs">
            <Radio
              value="transfer"
              label="Transfer them to another key"
              description={
                heirs.some(({ disabled }) => !disabled)
                  ? "They keep working and keep their installed app."
                  : "No other key can own them."
              }
              disabled={heirs.every(({ disabled }) => disabled)}
            />
            {fate === "transfer" && (
              <Select
                label="New owner"
                placeholder="Choose a key"
                data={heirs}
                value={heir}
                onChange={setHeir}
                searchable
                nothingFoundMessage="No such key"
                ml={32}
              />
            )}
            <Radio
              value="delete"
              label="Delete them"
              description="Pending deliveries are cancelled; the delivery log is kept."
            />
          </Stack>
        </Radio.Group>
      )}
    </ConfirmDialog>
  );
}

function isLastManager(apiKey: ApiKey | undefined, keys: readonly ApiKey[]): boolean {
  const managers = keys.filter(
    ({ revoked, permissions }) => !revoked && permissions.includes(Permission.MANAGE_API_KEYS),
  );
  return managers.length === 1 && managers[0]?.id === apiKey?.id;
}

/** The keys that can take over a revoked key's webhooks. Keys that may not subscribe to their event types are marked. */
function heirsOf(
  revoked: ApiKey | undefined,
  keys: readonly ApiKey[],
  webhooks: readonly Webhook[],
): ComboboxItem[] {
  const apps = new Set(webhooks.map((webhook) => webhook.application));
  const processes = [...new Set(webhooks.map((webhook) => webhook.webhookProcess))];
  return keys
    .filter((key) => key.id !== revoked?.id && !key.revoked && key.customer === revoked?.customer)
    .map((key) => {
      const { allowedProcesses: allowed } = key;
      const refused = allowed.length === 0 ? [] : processes.filter((process) => !allowed.includes(process));
      const name = `${key.name} (${key.prefix}…)`;
      const { installedApplicationId: app } = key;
      if (app !== undefined && [...apps].some((each) => each !== app)) {
        return { value: key.id, label: `${name}, of another app`, disabled: true };
      }
      return {
        value: key.id,
        label:
          refused.length === 0
            ? name
            : `${name}, not for ${refused.map((process) => processName(process)).join(", ")}`,
        disabled: refused.length > 0,
      };
    })
    .sort((a, b) => Number(a.disabled) - Number(b.disabled) || a.label.localeCompare(b.label));
}

const NAMED = 5;

/** The number of a key's webhooks, and the first of them. */
function KeyWebhooks({ webhooks, found }: { webhooks: readonly Webhook[]; found: number }) {
  if (webhooks.length === 0) return <Text size="sm">The key has no webhooks.</Text>;
  const more = found - NAMED;
  return (
    <Stack gap="xs">
      <Text size="sm">The key has {countOf(found, "webhook", "webhooks")}:</Text>
      <List size="sm" spacing={6}>
        {webhooks.slice(0, NAMED).map((webhook) => (
          <List.Item key={String(webhook.id)} styles={{ itemWrapper: { display: "block" } }}>
            {typeName(webhook)}
            <Code display="block">{webhook.url}</Code>
          </List.Item>
        ))}
        {more > 0 && <List.Item c="dimmed">and {more.toLocaleString()} more</List.Item>}
      </List>
    </Stack>
  );
}

/** Removes a revoked key for good. @param apiKey the key; the one before while the dialog is closed */
export function RemoveKey({ apiKey, ...dialog }: DialogProps & { apiKey: ApiKey | undefined }) {
  const remove = useChange(ApiKeyService.method.deleteApiKey);
  return (
    <ConfirmDialog
      {...dialog}
      title={`Remove the revoked key “${apiKey?.name}”?`}
      confirm="Remove key"
      danger
      onConfirm={async () => {
        await remove({ apiKeyId: apiKey?.id ?? "" });
        notifyDone(`“${apiKey?.name}” is removed`);
      }}
    >
      <Text size="sm">
        The key disappears from this list. The delivery log is kept. This cannot be undone.
      </Text>
    </ConfirmDialog>
  );
}
