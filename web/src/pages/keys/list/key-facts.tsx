import { Badge, Group, Stack, Text } from "@mantine/core";
import type { ApiKey } from "../../../../../gen/webhook/v1/api_key_pb.ts";
import { processName } from "../../../../../src/contract/catalogue.ts";
import { permissionName } from "../../../../../src/contract/permissions.ts";
import { countOf } from "../../../parts/text/count-of.ts";
import { Time } from "../../../parts/text/time.tsx";
import { PERMISSIONS } from "../dialogs/permissions.ts";

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
