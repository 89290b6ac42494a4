import type { MessageInitShape } from "@bufbuild/protobuf";
import { Box, SegmentedControl, Stack, Text, Textarea } from "@mantine/core";
import type {
  CertificateFacts,
  MaskedRequestSettings,
  TlsSettingsSchema,
} from "../../../../../gen/webhook/v1/request_settings_pb.ts";
import { Time } from "../../../parts/text/time.tsx";

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
  return {
    ...(client === "none"
      ? {}
      : {
          clientCertificate: client === "stored" ? {} : { certificate, ...(key === "" ? {} : { key }) },
        }),
    ...(trusted === "none" ? {} : { authorities: trusted === "stored" ? {} : { certificates: authorities } }),
  };
}

/** The fields of mutual TLS and of private authorities. */
export function TlsFields({
  values,
  settings,
  onChange,
}: {
  values: TlsValues;
  settings: MaskedRequestSettings;
  onChange: (values: TlsValues) => void;
}) {
  const change = (to: Partial<TlsValues>) => onChange({ ...values, ...to });
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
        {values.client === "stored" && clientCertificate && <CertificateText facts={clientCertificate} />}
        {values.client === "new" && (
          <>
            <Pem
              label="Certificate"
              description="PEM: the certificate, then intermediate ones."
              value={values.certificate}
              onChange={(certificate) => change({ certificate })}
            />
            <Pem
              label="Private key"
              description={
                clientCertificate
                  ? "PEM without a password. Leave empty to keep the stored key."
                  : "PEM without a password. It is encrypted and never shown again."
              }
              value={values.key}
              onChange={(key) => change({ key })}
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
        {values.trusted === "stored" &&
          authorities.map((facts) => <CertificateText key={facts.fingerprintSha256} facts={facts} />)}
        {values.trusted === "new" && (
          <Pem
            label="Private authorities"
            description="PEM. Only certificates of these authorities are accepted; the host name is verified too."
            value={values.authorities}
            onChange={(text) => change({ authorities: text })}
          />
        )}
      </Stack>
    </>
  );
}

function Choice({
  label,
  none,
  hasStored,
  value,
  onChange,
}: {
  label: string;
  none: string;
  hasStored: boolean;
  value: Source;
  onChange: (value: Source) => void;
}) {
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

function Pem({
  label,
  description,
  value,
  onChange,
}: {
  label: string;
  description: string;
  value: string;
  onChange: (value: string) => void;
}) {
  return (
    <Textarea
      label={label}
      description={description}
      placeholder="-----BEGIN …"
      value={value}
      onChange={(event) => onChange(event.currentTarget.value)}
      rows={4}
      autoComplete="off"
      spellCheck={false}
      styles={{ input: { fontFamily: "var(--mantine-font-family-monospace)" } }}
    />
  );
}

/** The subject, issuer, expiry and fingerprint of a certificate. */
export function CertificateText({
  facts: { subject, issuer, expires, fingerprintSha256 },
}: {
  facts: CertificateFacts;
}) {
  return (
    <Box style={{ overflowWrap: "anywhere" }}>
      <Text size="sm">
        {subject}, issued by {issuer}, valid until <Time value={expires} />
      </Text>
      <Text size="xs" c="dimmed" ff="monospace">
        SHA-256 {fingerprintSha256}
      </Text>
    </Box>
  );
}
