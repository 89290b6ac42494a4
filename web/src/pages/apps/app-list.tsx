import { ActionIcon, Anchor, Card, Group, Stack, Table, Text, Tooltip, VisuallyHidden } from "@mantine/core";
import { IconTrash } from "@tabler/icons-react";
import { Link } from "react-router";
import type { InstalledApp } from "../../../../gen/webhook/v1/api_key_pb.ts";
import { PAGE_PATHS } from "../../../../src/contract/page-paths.ts";
import { useMay } from "../../api/session.tsx";
import { useBelow } from "../../parts/lists/use-below.ts";
import { CopyButton } from "../../parts/text/copy-button.tsx";
import { countOf } from "../../parts/text/count-of.ts";
import { Time } from "../../parts/text/time.tsx";

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
