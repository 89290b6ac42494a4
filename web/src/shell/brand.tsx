import { ActionIcon, Group, Image, Menu, Text, useMantineColorScheme } from "@mantine/core";
import { IconCheck, IconDeviceDesktop, IconMoon, IconSun } from "@tabler/icons-react";
import mark from "../favicon.svg";

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

const SCHEMES = [
  { value: "light", label: "Light", icon: <IconSun size={16} /> },
  { value: "dark", label: "Dark", icon: <IconMoon size={16} /> },
  { value: "auto", label: "As the system", icon: <IconDeviceDesktop size={16} /> },
] as const;

/** Light, dark, or as the system has it; the browser remembers. */
export function ColourSchemeSwitch() {
  const { colorScheme, setColorScheme } = useMantineColorScheme();
  const now = SCHEMES.find(({ value }) => value === colorScheme) ?? SCHEMES[2];
  return (
    <Menu position="bottom-end" withArrow>
      <Menu.Target>
        <ActionIcon variant="default" size="lg" aria-label={`Colours: ${now.label.toLowerCase()}`}>
          {now.icon}
        </ActionIcon>
      </Menu.Target>
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
