import { Checkbox, PasswordInput, Stack } from "@mantine/core";
import type { ReactNode } from "react";

/** A secret of one's own, as entered. */
export interface OwnSecretValue {
  text: string;
  /** Whether the endpoint uses the text itself as the key, instead of the base64 in it. */
  isText: boolean;
}

export const NO_OWN_SECRET: OwnSecretValue = { text: "", isText: false };

/** The field `secret` of a request; nothing if the service shall generate the secret. */
export function ownSecret({ text, isText }: OwnSecretValue): { secret?: string } {
  if (text === "") return {};
  if (!isText) return { secret: text.trim() };
  return { secret: `whsec_${btoa(String.fromCharCode(...new TextEncoder().encode(text)))}` };
}

/** The fields for a secret of one's own. */
export function OwnSecret(props: {
  value: OwnSecretValue;
  onChange: (value: OwnSecretValue) => void;
  error?: ReactNode;
}) {
  const { value, onChange, error } = props;
  return (
    <Stack gap="xs">
      <PasswordInput
        label="Secret of your own"
        description="For endpoints that have one already: whsec_ and the base64 of 24 to 64 bytes. Leave it empty for a generated one."
        autoComplete="off"
        value={value.text}
        onChange={(event) => onChange({ ...value, text: event.currentTarget.value })}
        error={error}
      />
      {value.text !== "" && (
        <Checkbox
          label="The endpoint uses this text itself as the key"
          description="As Stripe’s and GitHub’s libraries do, with 24 to 64 bytes. The secret is then shown as whsec_ and the base64 of the text."
          checked={value.isText}
          onChange={(event) => onChange({ ...value, isText: event.currentTarget.checked })}
        />
      )}
    </Stack>
  );
}
