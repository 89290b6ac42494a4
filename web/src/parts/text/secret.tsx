import { Center, Group, PasswordInput } from "@mantine/core";
import { CopyButton } from "./copy-button.tsx";

/** A secret that is shown. */
export interface SecretProps {
  value: string;
  /** What it is: "Signing secret". */
  label: string;
  description?: string;
}

/** A secret, hidden until somebody asks to see it, and copied without that. */
export function Secret({ value, label, description }: SecretProps) {
  return (
    <Group align="flex-end" gap="xs" wrap="nowrap">
      <PasswordInput
        label={label}
        description={description}
        value={value}
        readOnly
        autoComplete="off"
        spellCheck={false}
        style={{ flexGrow: 1 }}
        styles={{ innerInput: { fontFamily: "var(--mantine-font-family-monospace)" } }}
        visibilityToggleButtonProps={{ "aria-label": `Show or hide: ${label}` }}
        onFocus={(event) => event.currentTarget.select()}
      />
      {/* As high as the field, so that the button is in its line. */}
      <Center h={36}>
        <CopyButton value={value} of={label} />
      </Center>
    </Group>
  );
}
