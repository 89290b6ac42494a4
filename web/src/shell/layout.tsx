import { useQuery } from "@connectrpc/connect-query";
import {
  AppShell,
  Burger,
  Button,
  Group,
  NavLink,
  Popover,
  ScrollArea,
  Skeleton,
  Stack,
  Text,
} from "@mantine/core";
import { useDisclosure } from "@mantine/hooks";
import { IconBook, IconChevronDown, IconListDetails, IconLogout, IconUser } from "@tabler/icons-react";
import { useEffect, useRef } from "react";
import { Outlet, NavLink as RouterLink, ScrollRestoration, useLocation } from "react-router";
import { SessionService } from "../../../gen/webhook/v1/session_pb.ts";
import { permissionName } from "../../../src/contract/permissions.ts";
import { useMay, useSession, useSessionAccess } from "../api/session.tsx";
import { BASE_PATH } from "../base-path.ts";
import { AwayNotice, notifyFailure } from "../parts/failure.tsx";
import { Dimmed } from "../parts/inline.tsx";
import { useBelow } from "../parts/listing.tsx";
import { Time, ZoneSwitch } from "../parts/time.tsx";
import { Brand, ColourSchemeSwitch } from "./brand.tsx";
import { CommandButton } from "./command-button.tsx";
import { useNavigation } from "./navigation.ts";

/** The frame of every page: navigation, account menu, light or dark. */
export function Layout() {
  const [opened, { toggle, close }] = useDisclosure();
  const narrow = useBelow("sm");
  const { pathname } = useLocation();
  const main = useFocusOnChange(pathname, close);
  const mayRead = useMay("Read_Administrative_Data");
  return (
    <AppShell
      header={{ height: 48 }}
      navbar={{ width: 200, breakpoint: "sm", collapsed: { mobile: !opened } }}
      padding={{ base: "md", sm: "xl" }}
    >
      <a className="skip-link" href="#content">
        Skip to the content
      </a>
      <AppShell.Header>
        <Group h="100%" px="md" justify="space-between" wrap="nowrap">
          <Group gap="sm" wrap="nowrap">
            <Burger
              opened={opened}
              onClick={toggle}
              hiddenFrom="sm"
              size="sm"
              aria-label={opened ? "Close the navigation" : "Open the navigation"}
              aria-expanded={opened}
            />
            <Brand />
          </Group>
          <Group gap="xs" wrap="nowrap">
            <CommandButton />
            <ZoneSwitch visibleFrom="sm" />
            <ColourSchemeSwitch />
            <AccountMenu />
          </Group>
        </Group>
      </AppShell.Header>
      {/* Closed, it is moved off the screen; the Tab key must not reach it there. */}
      <AppShell.Navbar p="sm" aria-label="Pages" inert={narrow && !opened}>
        <AppShell.Section grow component={ScrollArea}>
          {useNavigation().map((entry) => (
            <NavigationEntry key={entry.label} {...entry} />
          ))}
        </AppShell.Section>
        <AppShell.Section>
          <ZoneSwitch hiddenFrom="sm" />
          {mayRead && (
            <NavLink
              href={`${BASE_PATH}/events`}
              target="_blank"
              label="Event types"
              leftSection={<IconListDetails size={16} />}
            />
          )}
          <NavLink
            href={`${BASE_PATH}/docs`}
            target="_blank"
            label="API documentation"
            leftSection={<IconBook size={16} />}
          />
        </AppShell.Section>
      </AppShell.Navbar>
      <AppShell.Main id="content" ref={main} tabIndex={-1}>
        <div className="page">
          <AwayNotice />
          <Outlet />
        </div>
        {/* Back returns to where a list was left. */}
        <ScrollRestoration />
      </AppShell.Main>
    </AppShell>
  );
}

function NavigationEntry({ to, label, Icon }: ReturnType<typeof useNavigation>[number]) {
  const { pathname } = useLocation();
  const [path = ""] = to.split("?");
  const active = path === "/" ? pathname === "/" : pathname === path || pathname.startsWith(`${path}/`);
  return (
    <NavLink component={RouterLink} to={to} label={label} leftSection={<Icon size={16} />} active={active} />
  );
}

/** Moves the focus to a new page, so that screen readers read it and the keyboard continues there. */
function useFocusOnChange(pathname: string, onChange: () => void) {
  const main = useRef<HTMLElement>(null);
  const shown = useRef(pathname);
  useEffect(() => {
    if (shown.current === pathname) return;
    shown.current = pathname;
    onChange();
    main.current?.focus({ preventScroll: true });
  }, [pathname, onChange]);
  return main;
}

/** The menu with the session's key, its permissions and the sign-out. */
function AccountMenu() {
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
