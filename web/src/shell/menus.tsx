import { useQuery } from "@connectrpc/connect-query";
import { Button, Menu, Popover, Skeleton, Stack, Text, useMantineColorScheme } from "@mantine/core";
import { IconCheck, IconLogout } from "@tabler/icons-react";
import { SessionService } from "../../../gen/webhook/v1/session_pb.ts";
import { permissionName } from "../../../src/contract/permissions.ts";
import { useSession, useSessionAccess } from "../api/session.tsx";
import { notifyFailure } from "../parts/failure.tsx";
import { Dimmed } from "../parts/inline.tsx";
import type { MenuProps } from "../parts/on-demand.tsx";
import { Time } from "../parts/time.tsx";
import { SCHEMES } from "./brand.tsx";

/** The menu of the colour schemes. */
export function SchemeMenu({ children }: MenuProps) {
  const { colorScheme, setColorScheme } = useMantineColorScheme();
  return (
    <Menu position="bottom-end" withArrow>
      <Menu.Target>{children}</Menu.Target>
      <Menu.Dropdown>
        {SCHEMES.map(({ value, label, icon }) => (
          <Menu.Item
            key={value}
            leftSection={icon}
            rightSection={value === colorScheme ? <IconCheck size={14} /> : undefined}
            onClick={() => setColorScheme(value)}
          >
            {label}
          </Menu.Item>
        ))}
      </Menu.Dropdown>
    </Menu>
  );
}

/** The menu with the session's key, its permissions and the sign-out. */
export function AccountMenu({ children }: MenuProps) {
  return (
    <Popover position="bottom-end" width={300} withArrow trapFocus returnFocus>
      <Popover.Target>{children}</Popover.Target>
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
      <Dimmed size="xs">Signed in with the API key {apiKey?.prefix}…</Dimmed>
      <Dimmed size="xs" style={{ overflowWrap: "anywhere" }}>
        {apiKey?.permissions.map(permissionName).join(", ")}
      </Dimmed>
      {isPending && <Skeleton height={14} width="80%" />}
      {data && (
        <Dimmed size="xs">
          Signed out <Time value={data.session?.expires} /> if inactive until then
        </Dimmed>
      )}
      <Button mt="xs" variant="default" leftSection={<IconLogout size={16} />} onClick={leave} data-autofocus>
        Sign out
      </Button>
    </Stack>
  );
}
