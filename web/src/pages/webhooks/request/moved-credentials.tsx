import type { MessageInitShape } from "@bufbuild/protobuf";
import { useQuery } from "@connectrpc/connect-query";
import { Alert, PasswordInput, Radio, Stack } from "@mantine/core";
import type { UseFormReturnType } from "@mantine/form";
import { IconLock } from "@tabler/icons-react";
import type {
  MaskedRequestSettings,
  RequestSettingsSchema,
} from "../../../../../gen/webhook/v1/request_settings_pb.ts";
import { type Webhook, WebhookService } from "../../../../../gen/webhook/v1/webhook_pb.ts";
import {
  authenticationMessage,
  kindOf,
  oauth2Values,
  SECRET_LABELS,
  tlsMessage,
  tlsValues,
} from "./fields.tsx";

/** The fields of {@link MovedCredentials} in a form. */
export interface MovedValues {
  /** Whether the new host gets headers and credentials, or none. */
  credentials: "again" | "none";
  /** The values of the stored headers, in their order. */
  headerValues: string[];
  secret: string;
}

/** Fields that are empty. */
export const NO_MOVED_VALUES: MovedValues = { credentials: "again", headerValues: [], secret: "" };

/**
 * Reads the stored settings of a webhook. The returned function answers those whose headers or credentials another host would get
 * with the URL as typed: undefined if the host stays, or nothing is stored that it would get.
 */
export function useMovedSettings(webhook: Webhook): (url: string) => MaskedRequestSettings | undefined {
  // The page of the webhook has read them.
  const { data } = useQuery(WebhookService.method.getWebhookRequestSettings, { webhookId: webhook.id });
  const settings = data?.settings;
  const origin = originOf(webhook.url);
  return (url) => {
    const next = originOf(url);
    if (!settings || next === undefined || next === origin) return undefined;
    return settings.headerNames.length > 0 || kindOf(settings) !== "none" ? settings : undefined;
  };
}

function originOf(url: string): string | undefined {
  return URL.canParse(url) ? new URL(url).origin : undefined;
}

/** The errors of the fields. */
export function movedErrors(
  settings: MaskedRequestSettings | undefined,
  values: MovedValues,
): Record<string, string> {
  if (!settings || values.credentials === "none") return {};
  const errors: Record<string, string> = {};
  for (const [index, name] of settings.headerNames.entries())
    if (!values.headerValues[index]) errors[`headerValues.${index}`] = `Enter the value of ${name}.`;
  const kind = kindOf(settings);
  if (kind !== "none" && values.secret === "")
    errors.secret = `Enter the ${SECRET_LABELS[kind].toLowerCase()}.`;
  return errors;
}

/** The settings to send with the new URL. The TLS settings stay. */
export function movedChanges(
  settings: MaskedRequestSettings | undefined,
  { credentials, headerValues, secret }: MovedValues,
): { requestSettings?: MessageInitShape<typeof RequestSettingsSchema> } {
  if (!settings) return {};
  const tls = tlsMessage(tlsValues(settings));
  if (credentials === "none") return { requestSettings: { tls } };
  const { headerNames, basicUsername: username = "" } = settings;
  const headers = headerNames.map((name, index) => ({ name, value: headerValues[index] ?? "" }));
  const values = { username, secret, oauth2: oauth2Values(settings.oauth2) };
  return { requestSettings: { headers, tls, ...authenticationMessage(kindOf(settings), values) } };
}

/** The form's name of a field of {@link movedChanges}. */
export function movedField(field: string): string {
  const [, index] = /^requestSettings\.headers\[(\d+)\]/.exec(field) ?? [];
  if (index !== undefined) return `headerValues.${index}`;
  return field.startsWith("requestSettings.") ? "secret" : field;
}

/** Asks for the values of headers and credentials again, which the service does not send to another host by itself. */
export function MovedCredentials<Values extends MovedValues>(props: {
  settings: MaskedRequestSettings;
  form: UseFormReturnType<Values>;
}) {
  const { settings, form } = props;
  const kind = kindOf(settings);
  const { credentials } = form.values;
  return (
    <Alert color="ink" icon={<IconLock />} title="Another host gets no stored values">
      <Stack gap="sm">
        <Radio.Group aria-label="Headers and authentication" {...form.getInputProps("credentials")}>
          <Stack gap="xs">
            <Radio value="again" label="Enter headers and credentials for the new host" />
            <Radio value="none" label="Send without headers and credentials" />
          </Stack>
        </Radio.Group>
        {credentials === "again" &&
          settings.headerNames.map((name, index) => (
            <PasswordInput
              key={name}
              label={name}
              autoComplete="off"
              required
              {...form.getInputProps(`headerValues.${index}`)}
            />
          ))}
        {credentials === "again" && kind !== "none" && (
          <PasswordInput
            label={SECRET_LABELS[kind]}
            description={kind === "basic" ? `Of the user ${settings.basicUsername}` : undefined}
            autoComplete="new-password"
            required
            {...form.getInputProps("secret")}
          />
        )}
      </Stack>
    </Alert>
  );
}
