import { Center, Group, PasswordInput, TextInput } from "@mantine/core";
import { CopyButton } from "./copy-button.tsx";

/** A secret that is shown. */
export interface SecretProps {
  value: string;
  /** The name of the secret: "Signing secret". */
  label: string;
  description?: string;
  /** Whether the secret is in clear: where a button before has revealed it. Otherwise a click on its eye does. */
  revealed?: boolean;
}

/** A secret, with a button that copies it. */
export function Secret({ value, label, description, revealed = false }: SecretProps) {
  const field = {
    label,
    description,
    value,
    readOnly: true,
    autoComplete: "off",
    spellCheck: false,
    style: { flexGrow: 1 },
    onFocus: (event: React.FocusEvent<HTMLInputElement>) => event.currentTarget.select(),
  };
  return (
    <Group align="flex-end" gap="xs" wrap="nowrap">
      {revealed ? (
        <TextInput {...field} styles={{ input: MONOSPACE }} />
      ) : (
        <PasswordInput
          {...field}
          styles={{ innerInput: MONOSPACE }}
          visibilityToggleButtonProps={{ "aria-label": `Show or hide: ${label}` }}
        />
      )}
      {/* As high as the field, so that the button is in its line. */}
      <Center h={36}>
        <CopyButton value={value} of={label} />
      </Center>
    </Group>
  );
}

const MONOSPACE = { fontFamily: "var(--mantine-font-family-monospace)" };
