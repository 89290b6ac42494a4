import { Burger, Button, Group, Text } from "@mantine/core";
import { useDisclosure } from "@mantine/hooks";
import { IconBook, IconChevronDown, IconListDetails, IconUser } from "@tabler/icons-react";
import { useEffect, useRef } from "react";
import { NavLink, Outlet, ScrollRestoration, useLocation } from "react-router";
import { useMay, useSession } from "../api/session.tsx";
import { BASE_PATH } from "../base-path.ts";
import { AwayNotice } from "../parts/failure.tsx";
import { useBelow } from "../parts/listing.tsx";
import { MenuOnDemand } from "../parts/on-demand.tsx";
import { ZoneSwitch } from "../parts/time.tsx";
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
    <>
      <a className="skip-link" href="#content">
        Skip to the content
      </a>
      {/* Of the class, a dialog that locks scrolling knows what must not move when the scrollbar goes. */}
      <header className="header right-scroll-bar-position">
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
            <AccountButton />
          </Group>
        </Group>
      </header>
      {/* Closed, it is moved off the screen; the Tab key must not reach it there. */}
      <nav className="navigation" data-opened={opened} aria-label="Pages" inert={narrow && !opened}>
        <div className="navigation-pages">
          {useNavigation().map(({ to, label, Icon }) => (
            <NavLink key={label} to={to} className="nav-link">
              <Icon size={16} />
              {label}
            </NavLink>
          ))}
        </div>
        <div>
          <ZoneSwitch hiddenFrom="sm" />
          {mayRead && (
            <a className="nav-link" href={`${BASE_PATH}/events`} target="_blank" rel="noopener">
              <IconListDetails size={16} />
              Event types
            </a>
          )}
          <a className="nav-link" href={`${BASE_PATH}/docs`} target="_blank" rel="noopener">
            <IconBook size={16} />
            API documentation
          </a>
        </div>
      </nav>
      <main id="content" ref={main} tabIndex={-1}>
        <div className="page">
          <AwayNotice />
          <Outlet />
        </div>
        {/* Back returns to where a list was left. */}
        <ScrollRestoration />
      </main>
    </>
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

const loadMenu = async () => (await import("./menus.tsx")).AccountMenu;

/** The button of the menu with the session's key, its permissions and the sign-out. */
function AccountButton() {
  const { apiKey } = useSession();
  return (
    <MenuOnDemand
      load={loadMenu}
      kind="dialog"
      button={
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
      }
    />
  );
}
