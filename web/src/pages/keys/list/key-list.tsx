import {
  ActionIcon,
  Box,
  Button,
  Card,
  Group,
  Stack,
  Table,
  Text,
  Tooltip,
  VisuallyHidden,
} from "@mantine/core";
import { IconBan, IconGauge, IconRefresh, IconTrash } from "@tabler/icons-react";
import type { ReactNode } from "react";
import type { ApiKey } from "../../../../../gen/webhook/v1/api_key_pb.ts";
import { useBelow } from "../../../parts/lists/use-below.ts";
import { Time } from "../../../parts/text/time.tsx";
import { KeyEvents, KeyName, KeyPermissions, KeyQuotas } from "./key-facts.tsx";
import { mayManage, maySetQuotas } from "./rights.ts";

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
