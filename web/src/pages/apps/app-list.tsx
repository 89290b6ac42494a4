import {
  ActionIcon,
  Anchor,
  Card,
  Code,
  Group,
  Stack,
  Table,
  Text,
  Tooltip,
  VisuallyHidden,
} from "@mantine/core";
import { IconTrash } from "@tabler/icons-react";
import { Link } from "react-router";
import type { InstalledApp } from "../../../../gen/webhook/v1/api_key_pb.ts";
import { PAGE_PATHS } from "../../../../src/contract/page-paths.ts";
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
  return (
    <Table.ScrollContainer minWidth={640}>
      <Table verticalSpacing="sm" highlightOnHover>
        <Table.Thead>
          <Table.Tr>
            <Table.Th w="26%">Name</Table.Th>
            <Table.Th>Id</Table.Th>
            <Table.Th>Keys</Table.Th>
            <Table.Th>Created</Table.Th>
            <Table.Th w={60}>
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
  return (
    <Stack component="ul" p={0} m={0} gap="sm">
      {apps.map((app) => (
        <Card key={app.id} component="li" withBorder padding="md">
          <Stack gap="xs">
            <Text size="sm" fw={600} style={{ overflowWrap: "anywhere" }}>
              {app.name}
            </Text>
            <AppId app={app} />
            <Group justify="space-between" gap="sm">
              <AppKeys app={app} keysOf={keysOf} />
              <Text size="sm" c="dimmed">
                <Time value={app.created} />
              </Text>
              <Remove app={app} onRemove={onRemove} />
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
      <ActionIcon variant="subtle" color="red" aria-label={label} onClick={() => onRemove(app)}>
        <IconTrash size={18} />
      </ActionIcon>
    </Tooltip>
  );
}

function AppId({ app }: { app: InstalledApp }) {
  return (
    <Group gap={4} wrap="nowrap">
      <Code fz="xs">{app.id}</Code>
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
