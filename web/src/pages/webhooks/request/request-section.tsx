import { useQuery } from "@connectrpc/connect-query";
import { Button, Stack, Text } from "@mantine/core";
import { useDisclosure } from "@mantine/hooks";
import type { MaskedRequestSettings } from "../../../../../gen/webhook/v1/request_settings_pb.ts";
import { type Webhook, WebhookService } from "../../../../../gen/webhook/v1/webhook_pb.ts";
import { useMay } from "../../../api/session.tsx";
import { useFocusBack } from "../../../parts/dialogs/use-focus-back.ts";
import { Facts } from "../../../parts/layout/facts.tsx";
import { Section } from "../../../parts/layout/section.tsx";
import { Failure } from "../../../parts/status/failure.tsx";
import { Loading } from "../../../parts/status/loading.tsx";
import { RequestDialog } from "./request-dialog.tsx";
import { CertificateText } from "./tls-fields.tsx";

/** The custom headers and the authentication of a webhook's requests. */
export function RequestSection({ webhook }: { webhook: Webhook }) {
  const [editing, { open, close }] = useDisclosure();
  const mayWrite = useMay("Write_Administrative_Data");
  const { data, error, refetch } = useQuery(WebhookService.method.getWebhookRequestSettings, {
    webhookId: webhook.id,
  });
  useFocusBack(editing);
  const settings = data?.settings;
  return (
    <Section
      title="Headers and authentication"
      description="Deliveries carry these beside the standard headers and the signature. Values are encrypted and never shown again."
      actions={
        mayWrite &&
        (settings || error) && (
          <Button variant="default" size="xs" onClick={open}>
            Change…
          </Button>
        )
      }
    >
      {settings ? (
        <Shown settings={settings} />
      ) : error ? (
        <Failure error={error} onRetry={() => void refetch()} />
      ) : (
        <Loading lines={2} />
      )}
      <RequestDialog webhook={webhook} settings={settings} opened={editing} onClose={close} />
    </Section>
  );
}

function Shown({ settings }: { settings: MaskedRequestSettings }) {
  const { headerNames, oauth2, clientCertificate, authorities } = settings;
  const authentication = authenticationInWords(settings);
  if (headerNames.length + authorities.length === 0 && authentication === "None" && !clientCertificate) {
    return (
      <Text size="sm" c="dimmed">
        None: deliveries carry the standard headers only.
      </Text>
    );
  }
  return (
    <Facts
      facts={[
        headerNames.length > 0 && ["Headers", headerNames.join(", ")],
        ["Authentication", authentication],
        oauth2 !== undefined && ["Token URL", oauth2.tokenUrl],
        !!oauth2?.scope && ["Scopes", oauth2.scope],
        !!oauth2?.audience && ["Audience", oauth2.audience],
        clientCertificate !== undefined && [
          "Client certificate",
          <CertificateText key="client" facts={clientCertificate} />,
        ],
        authorities.length > 0 && [
          "Authorities",
          <Stack key="authorities" gap="xs">
            {authorities.map((facts) => (
              <CertificateText key={facts.fingerprintSha256} facts={facts} />
            ))}
          </Stack>,
        ],
      ]}
    />
  );
}

function authenticationInWords({ basicUsername, hasBearerToken, oauth2 }: MaskedRequestSettings): string {
  if (basicUsername !== undefined) return `Basic, user ${basicUsername}`;
  if (oauth2) return `OAuth 2.0, client ${oauth2.clientId}`;
  return hasBearerToken ? "Bearer token" : "None";
}
