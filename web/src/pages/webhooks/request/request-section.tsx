import { Code } from "@connectrpc/connect";
import { useQuery } from "@connectrpc/connect-query";
import { Stack, Text } from "@mantine/core";
import { useEffect } from "react";
import type { MaskedRequestSettings } from "../../../../../gen/webhook/v1/request_settings_pb.ts";
import { type Webhook, WebhookService } from "../../../../../gen/webhook/v1/webhook_pb.ts";
import { useChange } from "../../../api/queries.ts";
import { useMay } from "../../../api/session.tsx";
import { ConfirmDialog, DialogButton, type DialogProps } from "../../../parts/dialogs.tsx";
import { Failure, Loading } from "../../../parts/failure.tsx";
import { Dimmed } from "../../../parts/inline.tsx";
import { Facts, Section } from "../../../parts/page.tsx";
import { SharedNote } from "../endpoint.tsx";
import { CertificateTexts } from "./fields.tsx";
import { RequestDialog } from "./request-dialog.tsx";

/** The custom headers and the authentication of a webhook's requests. */
export function RequestSection({ webhook }: { webhook: Webhook }) {
  const mayWrite = useMay("Write_Administrative_Data");
  const { data, error, refetch } = useQuery(WebhookService.method.getWebhookRequestSettings, {
    webhookId: webhook.id,
  });
  const revision = data?.revision;
  useEffect(() => {
    // Otherwise a save would be refused for a change that the page has shown before the dialog opened.
    if (revision !== undefined && revision < webhook.revision) void refetch();
  }, [revision, webhook.revision, refetch]);
  // The service has no key that decrypts them. Then they can only be removed.
  const isUnreadable = error?.code === Code.FailedPrecondition;
  const settings = isUnreadable ? undefined : data?.settings;
  return (
    <Section
      title="Headers and authentication"
      description="Deliveries carry these beside the standard headers and the signature. Values are encrypted and never shown again."
      actions={
        mayWrite &&
        // Saving replaces all settings, so that the form needs the stored ones.
        (data && settings ? (
          <DialogButton
            dialog={(dialog) => (
              <RequestDialog {...dialog} webhook={webhook} stored={{ settings, revision: data.revision }} />
            )}
          >
            Change…
          </DialogButton>
        ) : (
          isUnreadable && (
            <DialogButton
              variant="light"
              color="red"
              dialog={(dialog) => <RemoveSettings {...dialog} webhook={webhook} />}
            >
              Remove the stored settings…
            </DialogButton>
          )
        ))
      }
    >
      {settings ? (
        <Shown settings={settings} />
      ) : error ? (
        <Failure error={error} onRetry={refetch} />
      ) : (
        <Loading lines={2} />
      )}
    </Section>
  );
}

/** Asks before settings are removed that the service cannot decrypt. */
function RemoveSettings({ webhook, ...dialog }: DialogProps & { webhook: Webhook }) {
  const set = useChange(WebhookService.method.setWebhookRequestSettings);
  return (
    <ConfirmDialog
      {...dialog}
      title="Remove the stored settings?"
      confirm="Remove settings"
      danger
      onConfirm={() => set({ webhookId: webhook.id })}
    >
      <Text size="sm">
        The custom headers, the authentication and the TLS settings are deleted. Deliveries then carry the
        standard headers only, until you enter new settings. To keep them, give the service the key that they
        were encrypted with.
      </Text>
      <SharedNote webhook={webhook} />
    </ConfirmDialog>
  );
}

function Shown({ settings }: { settings: MaskedRequestSettings }) {
  const { headerNames, oauth2, clientCertificate, authorities } = settings;
  const authentication = authenticationInWords(settings);
  if (headerNames.length + authorities.length === 0 && authentication === "None" && !clientCertificate) {
    return <Dimmed>None: deliveries carry the standard headers only.</Dimmed>;
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
          <CertificateTexts key="client" of={[clientCertificate]} />,
        ],
        authorities.length > 0 && [
          "Authorities",
          <Stack key="authorities" gap="xs">
            <CertificateTexts of={authorities} />
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
