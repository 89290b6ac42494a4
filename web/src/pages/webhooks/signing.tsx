import { useMutation, useQuery } from "@connectrpc/connect-query";
import { Button, Radio, Stack, Text } from "@mantine/core";
import { useDisclosure } from "@mantine/hooks";
import { notifications } from "@mantine/notifications";
import { IconEyeOff, IconKey, IconRefresh } from "@tabler/icons-react";
import { useState } from "react";
import {
  type Webhook,
  type WebhookKeyPair,
  type WebhookSecret,
  WebhookService,
} from "../../../../gen/webhook/v1/webhook_pb.ts";
import { useReadAnew } from "../../api/queries.ts";
import { useMay } from "../../api/session.tsx";
import { ConfirmDialog } from "../../parts/dialogs.tsx";
import { Failure, Loading, notifyFailure } from "../../parts/failure.tsx";
import { Section } from "../../parts/page.tsx";
import { Secret } from "../../parts/text/copy.tsx";
import { Time } from "../../parts/time.tsx";
import { useEndpoint, WebhookInWords } from "./endpoint.tsx";
import type { WebhookDialogProps } from "./webhook-form.tsx";

/** The secrets that a webhook's deliveries are signed with: asked for when somebody wants to see them, not before. */
export function SigningSecret({ webhook }: { webhook: Webhook }) {
  const [shown, show] = useDisclosure();
  const [rotating, rotate] = useDisclosure();
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
          <Button variant="default" leftSection={<IconRefresh size={16} />} onClick={rotate.open}>
            Rotate
          </Button>
        </>
      }
    >
      {shown && <Secrets webhookId={webhook.id} />}
      <Rotate webhook={webhook} opened={rotating} onClose={rotate.close} onRotated={show.open} />
    </Section>
  );
}

function Secrets({ webhookId }: { webhookId: bigint }) {
  const { data, error, refetch } = useQuery(
    WebhookService.method.getWebhookSecret,
    { webhookId },
    // Removed from memory as soon as it is hidden. The audit log records each read: none follows when somebody comes back to
    // the window, or the network returns.
    { gcTime: 0, staleTime: Number.POSITIVE_INFINITY },
  );
  if (!data) return error ? <Failure error={error} onRetry={() => void refetch()} /> : <Loading lines={2} />;
  return (
    <Stack gap="md">
      {data.secrets.map((each, index) => (
        <OneSecret key={each.secret} secret={each} place={index} />
      ))}
    </Stack>
  );
}

/** @param place 0 for the newest */
function OneSecret({ secret: { secret, expires }, place }: { secret: WebhookSecret; place: number }) {
  return (
    <div>
      <Secret
        value={secret}
        revealed
        label={place === 0 ? "Signing secret" : place === 1 ? "Old secret" : `Old secret ${place}`}
      />
      {expires && (
        <Text size="xs" c="dimmed" mt={4}>
          Signs beside the newest until <Time value={expires} />
        </Text>
      )}
    </div>
  );
}

interface RotateProps extends WebhookDialogProps {
  onRotated: () => void;
}

function Rotate({ webhook, opened, onClose, onRotated }: RotateProps) {
  const { isKnown } = useEndpoint(webhook);
  const rotate = useMutation(WebhookService.method.rotateWebhookSecret, { gcTime: 0 });
  const readAnew = useReadAnew();
  const [revokeOldSecrets, setRevokeOldSecrets] = useState(false);

  function close() {
    setRevokeOldSecrets(false);
    onClose();
  }

  return (
    <ConfirmDialog
      opened={opened}
      onClose={close}
      title="Rotate the signing secret?"
      confirm="Rotate secret"
      // Not before all event types that the secret signs are named.
      ready={isKnown}
      onConfirm={async () => {
        await rotate.mutateAsync({ webhookId: webhook.id, revokeOldSecrets });
        // What came back is not kept: the secrets are read anew by who shows them.
        rotate.reset();
        await Promise.all([readAnew(WebhookService), readAnew(WebhookService.method.getWebhookSecret)]);
        onRotated();
        notifications.show({
          color: "green",
          title: "The new secret is active",
          message: revokeOldSecrets
            ? "Configure it at the endpoint now: until then the endpoint refuses deliveries, which are retried."
            : "Configure it at the endpoint within 24 hours.",
        });
      }}
    >
      <WebhookInWords webhook={webhook} />
      <Text size="sm">A new secret signs deliveries immediately. At most five secrets sign at once.</Text>
      <Radio.Group
        label="How long does the old secret keep signing?"
        value={revokeOldSecrets ? "revoke" : "keep"}
        onChange={(value) => setRevokeOldSecrets(value === "revoke")}
      >
        <Stack gap="sm" mt="xs">
          <Radio
            value="keep"
            label="For 24 hours"
            description="Both secrets sign for 24 hours, so that the endpoint accepts deliveries until it has the new one."
          />
          <Radio
            value="revoke"
            label="Revoke immediately"
            description="All old secrets stop signing now. Use this if the secret leaked. The endpoint refuses deliveries until it has the new secret; they are retried."
          />
        </Stack>
      </Radio.Group>
      <Text size="sm">
        If the secret leaked, change the endpoint at once: until it rejects the old secret, anyone who has
        that secret can forge deliveries.
      </Text>
    </ConfirmDialog>
  );
}

/** The public keys that verify a webhook's deliveries, and the key pairs' creation, rotation and deletion. */
export function KeyPairs({ webhook }: { webhook: Webhook }) {
  const mayWrite = useMay("Write_Administrative_Data");
  const { data, error, refetch } = useQuery(WebhookService.method.getWebhookKeyPairs, {
    webhookId: webhook.id,
  });
  const pairs = data?.keyPairs ?? [];
  if (!mayWrite && pairs.length === 0) return null;
  return (
    <Section
      title="Public-key signature"
      description="Signs each delivery with an ed25519 private key too, which never leaves the service (v1a of Standard Webhooks). Receivers verify with the public key, which is not a secret."
      actions={mayWrite && (data || error) && <Actions webhook={webhook} isOn={pairs.length > 0 || !data} />}
    >
      {error && <Failure error={error} onRetry={() => void refetch()} />}
      {data && pairs.length === 0 && (
        <Text size="sm" c="dimmed">
          Off: deliveries are signed with the signing secret only.
        </Text>
      )}
      <Stack gap="md">
        {pairs.map((pair, index) => (
          <PublicKey key={pair.publicKey} pair={pair} place={index} />
        ))}
      </Stack>
    </Section>
  );
}

/** @param place 0 for the newest */
function PublicKey({ pair: { publicKey, expires }, place }: { pair: WebhookKeyPair; place: number }) {
  return (
    <div>
      <Secret
        value={publicKey}
        revealed
        label={place === 0 ? "Public key" : place === 1 ? "Old public key" : `Old public key ${place}`}
      />
      {expires && (
        <Text size="xs" c="dimmed" mt={4}>
          Signs beside the newest until <Time value={expires} />
        </Text>
      )}
    </div>
  );
}

function Actions({ webhook, isOn }: { webhook: Webhook; isOn: boolean }) {
  const create = useMutation(WebhookService.method.rotateWebhookKeyPair);
  const readAnew = useReadAnew();
  const [rotating, rotate] = useDisclosure();
  const [removing, remove] = useDisclosure();

  async function turnOn() {
    try {
      await create.mutateAsync({ webhookId: webhook.id });
      await readAnew(WebhookService);
    } catch (error) {
      notifyFailure("Public-key signatures are still off", error);
    }
  }

  return (
    <>
      {/* One button, which keeps the focus when its action changes. */}
      <Button
        variant="default"
        leftSection={isOn && <IconRefresh size={16} />}
        loading={create.isPending}
        onClick={isOn ? rotate.open : () => void turnOn()}
      >
        {isOn ? "Rotate key pair" : "Turn on"}
      </Button>
      {isOn && (
        <Button variant="default" onClick={remove.open}>
          Turn off
        </Button>
      )}
      <RotateKeyPair webhook={webhook} opened={rotating} onClose={rotate.close} />
      <TurnOff webhook={webhook} opened={removing} onClose={remove.close} />
    </>
  );
}

function RotateKeyPair({ webhook, opened, onClose }: WebhookDialogProps) {
  const rotate = useMutation(WebhookService.method.rotateWebhookKeyPair);
  const readAnew = useReadAnew();
  const [revokeOldKeyPairs, setRevokeOldKeyPairs] = useState(false);

  function close() {
    setRevokeOldKeyPairs(false);
    onClose();
  }

  return (
    <ConfirmDialog
      opened={opened}
      onClose={close}
      title="Rotate the key pair?"
      confirm="Rotate"
      onConfirm={async () => {
        await rotate.mutateAsync({ webhookId: webhook.id, revokeOldKeyPairs });
        await readAnew(WebhookService);
        notifications.show({
          color: "green",
          title: "The new key pair is active",
          message: revokeOldKeyPairs
            ? "Configure its public key at the endpoint now: until then the endpoint refuses deliveries, which are retried."
            : "Configure its public key at the endpoint within 24 hours.",
        });
      }}
    >
      <WebhookInWords webhook={webhook} />
      <Text size="sm">A new key pair signs deliveries immediately. At most five key pairs sign at once.</Text>
      <Radio.Group
        label="How long does the old key pair keep signing?"
        value={revokeOldKeyPairs ? "revoke" : "keep"}
        onChange={(value) => setRevokeOldKeyPairs(value === "revoke")}
      >
        <Stack gap="sm" mt="xs">
          <Radio
            value="keep"
            label="For 24 hours"
            description="Both key pairs sign for 24 hours, so that the endpoint accepts deliveries until it has the new public key."
          />
          <Radio
            value="revoke"
            label="Revoke immediately"
            description="All old key pairs stop signing now. The endpoint refuses deliveries until it has the new public key; they are retried."
          />
        </Stack>
      </Radio.Group>
    </ConfirmDialog>
  );
}

function TurnOff({ webhook, opened, onClose }: WebhookDialogProps) {
  const remove = useMutation(WebhookService.method.deleteWebhookKeyPairs);
  const readAnew = useReadAnew();
  return (
    <ConfirmDialog
      opened={opened}
      onClose={onClose}
      title="Turn public-key signatures off?"
      confirm="Turn off"
      danger
      onConfirm={async () => {
        await remove.mutateAsync({ webhookId: webhook.id });
        await readAnew(WebhookService);
      }}
    >
      <WebhookInWords webhook={webhook} />
      <Text size="sm">
        Its key pairs are deleted. Endpoints that verify with the public key refuse deliveries from then on.
        Turning signatures on again creates another key pair.
      </Text>
    </ConfirmDialog>
  );
}
