import { useQuery } from "@connectrpc/connect-query";
import { Button, Popover, Skeleton, Stack, Text } from "@mantine/core";
import { IconChevronDown, IconLogout, IconUser } from "@tabler/icons-react";
import { SessionService } from "../../../gen/webhook/v1/session_pb.ts";
import { permissionName } from "../../../src/contract/permissions.ts";
import { useSession, useSessionAccess } from "../api/session.tsx";
import { notifyFailure } from "../parts/status/notify-failure.ts";
import { Time } from "../parts/text/time.tsx";

/** The menu with the session's key, its permissions and the sign-out. */
export function AccountMenu() {
  const { apiKey } = useSession();
  return (
    <Popover position="bottom-end" width={300} withArrow trapFocus returnFocus>
      <Popover.Target>
        <Button
          variant="default"
          aria-label={`Signed in: ${apiKey?.name}`}
          maw={260}
          px="sm"
          leftSection={<IconUser size={16} />}
          rightSection={<IconChevronDown size={14} />}
        >
          <Text size="sm" truncate visibleFrom="sm">
            {apiKey?.name}
          </Text>
        </Button>
      </Popover.Target>
      <Popover.Dropdown>
        <Account />
      </Popover.Dropdown>
    </Popover>
  );
}

function Account() {
  const { apiKey } = useSession();
  const { signOut } = useSessionAccess();
  // Read each time the menu opens: every call extends the session. An older answer would be wrong.
  const { data, isPending } = useQuery(SessionService.method.getSession, {}, { gcTime: 0 });

  function leave() {
    signOut().catch((error: unknown) => notifyFailure("You are still signed in", error));
  }

  return (
    <Stack gap={6}>
      <Text size="sm" fw={600} style={{ overflowWrap: "anywhere" }}>
        {apiKey?.name}
      </Text>
      <Text size="xs" c="dimmed">
        Signed in with the API key {apiKey?.prefix}…
      </Text>
      <Text size="xs" c="dimmed" style={{ overflowWrap: "anywhere" }}>
        {apiKey?.permissions.map(permissionName).join(", ")}
      </Text>
      {isPending && <Skeleton height={14} width="80%" />}
      {data && (
        <Text size="xs" c="dimmed">
          Signed out <Time value={data.session?.expires} /> if inactive until then
        </Text>
      )}
      <Button
        mt="xs"
        variant="default"
        size="xs"
        leftSection={<IconLogout size={16} />}
        onClick={leave}
        data-autofocus
      >
        Sign out
      </Button>
    </Stack>
  );
}
