import { ActionIcon, Group, Image, Text, useMantineColorScheme } from "@mantine/core";
import { IconDeviceDesktop, IconMoon, IconSun } from "@tabler/icons-react";
import mark from "../favicon.svg";
import { MenuOnDemand } from "../parts/on-demand.tsx";

/** The service's mark and name. */
export function Brand() {
  return (
    <Group gap="xs" wrap="nowrap">
      <Image src={mark} alt="" w={26} h={26} />
      <Text fw={650} style={{ whiteSpace: "nowrap" }}>
        Webhook service
      </Text>
    </Group>
  );
}

/** The colour schemes. */
export const SCHEMES = [
  { value: "light", label: "Light", icon: <IconSun size={16} /> },
  { value: "dark", label: "Dark", icon: <IconMoon size={16} /> },
  { value: "auto", label: "As the system", icon: <IconDeviceDesktop size={16} /> },
] as const;

const loadMenu = async () => (await import("./menus.tsx")).SchemeMenu;

/** Light, dark, or as the system has it; the browser remembers. */
export function ColourSchemeSwitch() {
  const { colorScheme } = useMantineColorScheme();
  const now = SCHEMES.find(({ value }) => value === colorScheme) ?? SCHEMES[2];
  return (
    <MenuOnDemand
      load={loadMenu}
      kind="menu"
      button={
        <ActionIcon variant="default" size="lg" aria-label={`Colours: ${now.label.toLowerCase()}`}>
          {now.icon}
        </ActionIcon>
      }
    />
  );
}
