import { useQuery } from "@connectrpc/connect-query";
import { Button, Stack, Text } from "@mantine/core";
import { useDisclosure } from "@mantine/hooks";
import { IconEyeOff, IconKey, IconRefresh } from "@tabler/icons-react";
import type { ReactNode } from "react";
import { type Webhook, type WebhookSecret, WebhookService } from "../../../../gen/webhook/v1/webhook_pb.ts";
import { useChange } from "../../api/queries.ts";
import { useMay } from "../../api/session.tsx";
import {
  ConfirmDialog,
  DialogButton,
  type DialogProps,
  RadioChoice,
  useDialogState,
} from "../../parts/dialogs.tsx";
import { Failure, Loading } from "../../parts/failure.tsx";
import { Dimmed } from "../../parts/inline.tsx";
import { Section } from "../../parts/page.tsx";
import { notifyDone, useAct } from "../../parts/save.ts";
import { Secret } from "../../parts/text/copy.tsx";
import { Time } from "../../parts/time.tsx";
import { useEndpoint, WebhookInWords } from "./endpoint.tsx";
import { NO_OWN_SECRET, OwnSecret, ownSecret } from "./own-secret.tsx";

const { method } = WebhookService;

/** The secrets that a webhook's deliveries are signed with: asked for when somebody wants to see them, not before. */
export function SigningSecret({ webhook }: { webhook: Webhook }) {
  const [shown, show] = useDisclosure();
  return (
    <Section
      title="Signing secret"
      description="Signs each delivery (Standard Webhooks). Keep it secret: anyone who has it can forge deliveries."
      actions={
        <>
          <Button
            variant="default"
            leftSection={shown ? <IconEyeOff size={16} /> : <IconKey size={16} />}
            onClick={show.toggle}
          >
            {shown ? "Hide" : "Reveal secret"}
          </Button>
          <DialogButton
            leftSection={<IconRefresh size={16} />}
            dialog={(dialog) => <RotateSecret {...dialog} webhook={webhook} onRotated={show.open} />}
          >
            Rotate
          </DialogButton>
        </>
      }
    >
      {shown && <Secrets webhookId={webhook.id} />}
    </Section>
  );
}

/** Asks before the signing secret of a webhook is replaced. */
export function RotateSecret(props: DialogProps & { webhook: Webhook; onRotated: () => void }) {
  const { webhook, onRotated, ...dialog } = props;
  const { isKnown } = useEndpoint(webhook);
  const rotate = useChange(method.rotateWebhookSecret, WebhookService, method.getWebhookSecret);
  const [own, setOwn] = useDialogState(dialog.opened, NO_OWN_SECRET);
  return (
    <Rotate
      {...dialog}
      webhook={webhook}
      what="secret"
      title="Rotate the signing secret?"
      confirm="Rotate secret"
      // Not before all event types that the secret signs are named.
      ready={isKnown}
      rotate={async (revokeOldSecrets) => {
        await rotate({ webhookId: webhook.id, revokeOldSecrets, ...ownSecret(own) });
        setOwn(NO_OWN_SECRET);
        onRotated();
      }}
      configure="it"
      keep="Both secrets sign for 24 hours, so that the endpoint accepts deliveries until it has the new one."
      revoke="All old secrets stop signing now. Use this if the secret leaked. The endpoint refuses deliveries until it has the new secret; they are retried."
    >
      <OwnSecret value={own} onChange={setOwn} />
      <Text size="sm">
        If the secret leaked, change the endpoint at once: until it rejects the old secret, anyone who has
        that secret can forge deliveries.
      </Text>
    </Rotate>
  );
}

function Secrets({ webhookId }: { webhookId: bigint }) {
  const { data, error, refetch } = useQuery(
    method.getWebhookSecret,
    { webhookId },
    // Removed from memory as soon as it is hidden. The audit log records each read: none follows when somebody comes back to
    // the window, or the network returns.
    { gcTime: 0, staleTime: Number.POSITIVE_INFINITY },
  );
  if (!data) return error ? <Failure error={error} onRetry={refetch} /> : <Loading lines={2} />;
  return <Keys newest="Signing secret" old="Old secret" keys={data.secrets} />;
}

/** @param keys the newest first */
function Keys(props: { newest: string; old: string; keys: Pick<WebhookSecret, "secret" | "expires">[] }) {
  const { newest, old, keys } = props;
  return (
    <Stack gap="md">
      {keys.map(({ secret, expires }, place) => (
        <div key={secret}>
          <Secret
            value={secret}
            revealed
            label={place === 0 ? newest : place === 1 ? old : `${old} ${place}`}
          />
          {expires && (
            <Dimmed size="xs" mt={4}>
              Signs beside the newest until <Time value={expires} />
            </Dimmed>
          )}
        </div>
      ))}
    </Stack>
  );
}

interface RotateProps extends DialogProps {
  webhook: Webhook;
  what: "secret" | "key pair";
  title: string;
  confirm: string;
  ready?: boolean;
  rotate: (revokeOld: boolean) => Promise<unknown>;
  /** What is configured at the endpoint. */
  configure: string;
  /** The effect of keeping the old one, and of revoking it. */
  keep: string;
  revoke: string;
  children?: ReactNode;
}

function Rotate(props: RotateProps) {
  const { webhook, what, rotate, configure, keep, revoke, children, ...dialog } = props;
  const [old, setOld] = useDialogState<"keep" | "revoke">(dialog.opened, "keep");

  async function run() {
    await rotate(old === "revoke");
    const when =
      old === "revoke"
        ? "now: until then the endpoint refuses deliveries, which are retried."
        : "within 24 hours.";
    notifyDone(`Configure ${configure} at the endpoint ${when}`, `The new ${what} is active`);
  }

  return (
    <ConfirmDialog {...dialog} onConfirm={run}>
      <WebhookInWords webhook={webhook} />
      <Text size="sm">
        A new {what} signs deliveries immediately. At most five {what}s sign at once.
      </Text>
      <RadioChoice
        label={`How long does the old ${what} keep signing?`}
        value={old}
        onChange={setOld}
        options={[
          { value: "keep", label: "For 24 hours", description: keep },
          { value: "revoke", label: "Revoke immediately", description: revoke },
        ]}
      />
      {children}
    </ConfirmDialog>
  );
}

/** The public keys that verify a webhook's deliveries, and the key pairs' creation, rotation and deletion. */
export function KeyPairs({ webhook }: { webhook: Webhook }) {
  const mayWrite = useMay("Write_Administrative_Data");
  const { data, error, refetch } = useQuery(method.getWebhookKeyPairs, { webhookId: webhook.id });
  const pairs = data?.keyPairs ?? [];
  if (!mayWrite && pairs.length === 0) return null;
  return (
    <Section
      title="Public-key signature"
      description="Signs each delivery with an ed25519 private key too, which never leaves the service (v1a of Standard Webhooks). Receivers verify with the public key, which is not a secret."
      actions={mayWrite && (data || error) && <Actions webhook={webhook} isOn={pairs.length > 0 || !data} />}
    >
      <Failure error={error} onRetry={refetch} />
      {data && pairs.length === 0 && (
        <Dimmed>Off: deliveries are signed with the signing secret only.</Dimmed>
      )}
      <Keys
        newest="Public key"
        old="Old public key"
        keys={pairs.map(({ publicKey, ...pair }) => ({ ...pair, secret: publicKey }))}
      />
    </Section>
  );
}

function Actions({ webhook, isOn }: { webhook: Webhook; isOn: boolean }) {
  const rotate = useChange(method.rotateWebhookKeyPair);
  const remove = useChange(method.deleteWebhookKeyPairs);
  const [rotating, { open, close }] = useDisclosure();
  const turnOn = useAct("Public-key signatures are still off", () => rotate({ webhookId: webhook.id }));
  return (
    <>
      {/* One button, which keeps the focus when its action changes. */}
      <Button
        variant="default"
        leftSection={isOn && <IconRefresh size={16} />}
        {...turnOn}
        {...(isOn ? { onClick: open } : {})}
      >
        {isOn ? "Rotate key pair" : "Turn on"}
      </Button>
      {isOn && (
        <DialogButton
          dialog={(dialog) => (
            <ConfirmDialog
              {...dialog}
              title="Turn public-key signatures off?"
              confirm="Turn off"
              danger
              onConfirm={() => remove({ webhookId: webhook.id })}
            >
              <WebhookInWords webhook={webhook} />
              <Text size="sm">
                Its key pairs are deleted. Endpoints that verify with the public key refuse deliveries from
                then on. Turning signatures on again creates another key pair.
              </Text>
            </ConfirmDialog>
          )}
        >
          Turn off
        </DialogButton>
      )}
      <Rotate
        opened={rotating}
        onClose={close}
        webhook={webhook}
        what="key pair"
        title="Rotate the key pair?"
        confirm="Rotate"
        rotate={(revokeOldKeyPairs) => rotate({ webhookId: webhook.id, revokeOldKeyPairs })}
        configure="its public key"
        keep="Both key pairs sign for 24 hours, so that the endpoint accepts deliveries until it has the new public key."
        revoke="All old key pairs stop signing now. The endpoint refuses deliveries until it has the new public key; they are retried."
      />
    </>
  );
}
