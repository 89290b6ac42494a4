import type { MessageInitShape } from "@bufbuild/protobuf";
import {
  Box,
  Checkbox,
  SegmentedControl,
  Stack,
  Text,
  Textarea,
  type TextareaProps,
  TextInput,
} from "@mantine/core";
import type {
  CertificateFacts,
  MaskedOAuth2Authentication,
  MaskedRequestSettings,
  RequestSettingsSchema,
  TlsSettingsSchema,
} from "../../../../../gen/webhook/v1/request_settings_pb.ts";
import { Dimmed } from "../../../parts/inline.tsx";
import { Time } from "../../../parts/time.tsx";

/** A kind of authentication. */
export type Kind = "none" | "basic" | "bearer" | "oauth2";

/** The labels of the secrets of each kind. */
export const SECRET_LABELS = { basic: "Password", bearer: "Token", oauth2: "Client secret" };

/** The kind of the stored authentication. */
export function kindOf({ basicUsername, oauth2, hasBearerToken }: MaskedRequestSettings): Kind {
  if (basicUsername !== undefined) return "basic";
  if (oauth2) return "oauth2";
  return hasBearerToken ? "bearer" : "none";
}

/** The values of the fields. An empty secret keeps the stored one. */
export interface AuthenticationValues {
  username: string;
  secret: string;
  oauth2: OAuth2Values;
}

/** The authentication to send. @param isKept whether the stored secret is kept if the field is empty: a password may be empty */
export function authenticationMessage(
  kind: Kind,
  { username, secret, oauth2 }: AuthenticationValues,
  isKept = false,
): Pick<MessageInitShape<typeof RequestSettingsSchema>, "authentication"> {
  const given = <Name extends string>(name: Name) => (secret === "" && isKept ? {} : { [name]: secret });
  switch (kind) {
    case "none":
      return {};
    case "basic":
      return { authentication: { case: kind, value: { username, ...given("password") } } };
    case "bearer":
      return { authentication: { case: kind, value: given("token") } };
    case "oauth2":
      return { authentication: { case: kind, value: { ...oauth2, ...given("clientSecret") } } };
  }
}

/** The stored settings as a request, in which unset values stand for the stored ones. */
export function keptSettings(stored: MaskedRequestSettings): MessageInitShape<typeof RequestSettingsSchema> {
  const values = { username: stored.basicUsername ?? "", secret: "", oauth2: oauth2Values(stored.oauth2) };
  return {
    headers: stored.headerNames.map((name) => ({ name })),
    tls: tlsMessage(tlsValues(stored)),
    ...authenticationMessage(kindOf(stored), values, true),
  };
}

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
export function OAuth2Fields(props: { values: OAuth2Values; onChange: (values: OAuth2Values) => void }) {
  const { values, onChange } = props;
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

/** The source of a value of the form. */
type Source = "none" | "stored" | "new";

/** The TLS settings in the form. */
export interface TlsValues {
  client: Source;
  certificate: string;
  key: string;
  trusted: Source;
  authorities: string;
}

/** @param settings what is stored */
export function tlsValues({ clientCertificate, authorities }: MaskedRequestSettings): TlsValues {
  return {
    client: clientCertificate ? "stored" : "none",
    certificate: "",
    key: "",
    trusted: authorities.length > 0 ? "stored" : "none",
    authorities: "",
  };
}

/** The TLS settings to send. */
export function tlsMessage(values: TlsValues): MessageInitShape<typeof TlsSettingsSchema> {
  const { client, certificate, key, trusted, authorities } = values;
  const given = { certificate, ...(key === "" ? {} : { key }) };
  return {
    ...(client === "none" ? {} : { clientCertificate: client === "stored" ? {} : given }),
    ...(trusted === "none" ? {} : { authorities: trusted === "stored" ? {} : { certificates: authorities } }),
  };
}

/** The values of the fields, and the settings that are stored. */
export interface TlsFieldsProps {
  values: TlsValues;
  settings: MaskedRequestSettings;
  onChange: (values: TlsValues) => void;
}

/** The fields of mutual TLS and of private authorities. */
export function TlsFields({ values, settings, onChange }: TlsFieldsProps) {
  const change = (to: Partial<TlsValues>) => onChange({ ...values, ...to });
  const pem = (name: "certificate" | "key" | "authorities") => ({
    value: values[name],
    onChange: (event: React.ChangeEvent<HTMLTextAreaElement>) =>
      change({ [name]: event.currentTarget.value }),
  });
  const { clientCertificate, authorities } = settings;
  return (
    <>
      <Stack gap="xs">
        <Choice
          label="Client certificate"
          none="None"
          hasStored={clientCertificate !== undefined}
          value={values.client}
          onChange={(client) => change({ client })}
        />
        {values.client === "stored" && clientCertificate && <CertificateTexts of={[clientCertificate]} />}
        {values.client === "new" && (
          <>
            <Pem
              label="Certificate"
              description="PEM: the certificate, then intermediate ones."
              {...pem("certificate")}
            />
            <Pem
              label="Private key"
              description={
                clientCertificate
                  ? "PEM without a password. Leave empty to keep the stored key."
                  : "PEM without a password. It is encrypted and never shown again."
              }
              {...pem("key")}
            />
          </>
        )}
      </Stack>
      <Stack gap="xs">
        <Choice
          label="Certificate authorities"
          none="Public"
          hasStored={authorities.length > 0}
          value={values.trusted}
          onChange={(trusted) => change({ trusted })}
        />
        {values.trusted === "stored" && <CertificateTexts of={authorities} />}
        {values.trusted === "new" && (
          <Pem
            label="Private authorities"
            description="PEM. Only certificates of these authorities are accepted; the host name is verified too."
            {...pem("authorities")}
          />
        )}
      </Stack>
    </>
  );
}

interface ChoiceProps {
  label: string;
  none: string;
  hasStored: boolean;
  value: Source;
  onChange: (value: Source) => void;
}

function Choice({ label, none, hasStored, value, onChange }: ChoiceProps) {
  return (
    <>
      <Text size="sm" fw={500}>
        {label}
      </Text>
      <SegmentedControl
        aria-label={label}
        data={[
          { value: "none", label: none },
          ...(hasStored ? [{ value: "stored", label: "Stored" }] : []),
          { value: "new", label: "New" },
        ]}
        value={value}
        onChange={(next) => onChange(next as Source)}
      />
    </>
  );
}

function Pem(props: Pick<TextareaProps, "label" | "description" | "value" | "onChange">) {
  return (
    <Textarea
      placeholder="-----BEGIN …"
      rows={4}
      autoComplete="off"
      spellCheck={false}
      styles={{ input: { fontFamily: "var(--mantine-font-family-monospace)" } }}
      {...props}
    />
  );
}

/** The maximum number of certificates shown: the bundle of a system has 150. */
const MAX_SHOWN = 10;

/** The subject, issuer, expiry and fingerprint of certificates. */
export function CertificateTexts({ of }: { of: readonly CertificateFacts[] }) {
  return (
    <>
      {of.slice(0, MAX_SHOWN).map(({ subject, issuer, expires, fingerprintSha256 }) => (
        <Box key={fingerprintSha256} style={{ overflowWrap: "anywhere" }}>
          <Text size="sm">
            {subject}, issued by {issuer}, valid until <Time value={expires} />
          </Text>
          <Dimmed size="xs" ff="monospace">
            SHA-256 {fingerprintSha256}
          </Dimmed>
        </Box>
      ))}
      {of.length > MAX_SHOWN && <Dimmed>and {of.length - MAX_SHOWN} more</Dimmed>}
    </>
  );
}
