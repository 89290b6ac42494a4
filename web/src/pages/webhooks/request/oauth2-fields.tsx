import { Checkbox, TextInput } from "@mantine/core";
import type { MaskedOAuth2Authentication } from "../../../../../gen/webhook/v1/request_settings_pb.ts";

/** The settings of OAuth 2.0 in the form, without the secret. */
export interface OAuth2Values {
  tokenUrl: string;
  clientId: string;
  scope: string;
  audience: string;
  secretInBody: boolean;
}

/** @param stored what is stored; undefined for none */
export function oauth2Values(stored: MaskedOAuth2Authentication | undefined): OAuth2Values {
  const { tokenUrl = "", clientId = "", scope = "", audience = "", secretInBody = false } = stored ?? {};
  return { tokenUrl, clientId, scope, audience, secretInBody };
}

/** The fields of OAuth 2.0 client credentials. The secret has a separate field. */
export function OAuth2Fields({
  values,
  onChange,
}: {
  values: OAuth2Values;
  onChange: (values: OAuth2Values) => void;
}) {
  const field = (name: "tokenUrl" | "clientId" | "scope" | "audience") => ({
    value: values[name],
    onChange: (event: React.ChangeEvent<HTMLInputElement>) =>
      onChange({ ...values, [name]: event.currentTarget.value }),
    autoComplete: "off",
    spellCheck: false,
  });
  return (
    <>
      <TextInput
        label="Token URL"
        description="The service fetches access tokens here and renews them before they end."
        placeholder="https://login.example.com/oauth2/token"
        {...field("tokenUrl")}
      />
      <TextInput label="Client id" {...field("clientId")} />
      <TextInput label="Scopes (optional)" placeholder="orders.write stock.write" {...field("scope")} />
      <TextInput label="Audience (optional)" {...field("audience")} />
      <Checkbox
        label="Send the id and the secret in the body, not in the header Authorization"
        checked={values.secretInBody}
        onChange={(event) => onChange({ ...values, secretInBody: event.currentTarget.checked })}
      />
    </>
  );
}
