import { useMutation } from "@connectrpc/connect-query";
import { NumberInput, Text } from "@mantine/core";
import { useEffect, useState } from "react";
import { WebhookService } from "../../../../../gen/webhook/v1/webhook_pb.ts";
import { useReadAnew } from "../../../api/use-read-anew.ts";
import { ConfirmDialog } from "../../../parts/dialogs/confirm-dialog.tsx";
import type { WebhookDialogProps } from "../actions/webhook-dialog-props.ts";

/** Asks how many deliveries a second a webhook's receiver can take. */
export function RateLimit({ webhook, opened, onClose }: WebhookDialogProps) {
  const setLimit = useMutation(WebhookService.method.setWebhookRateLimit);
  const readAnew = useReadAnew();
  const [limit, setTyped] = useState<number | string>("");
  const now = webhook.rateLimit;
  useEffect(() => {
    if (opened) setTyped(now ?? "");
  }, [opened, now]);
  return (
    <ConfirmDialog
      opened={opened}
      onClose={onClose}
      title="Rate limit"
      confirm="Set the limit"
      onConfirm={async () => {
        await setLimit.mutateAsync({
          webhookId: webhook.id,
          ...(limit === "" ? {} : { rateLimit: Number(limit) }),
        });
        await readAnew(WebhookService);
      }}
    >
      <Text size="sm">
        Deliveries beyond the limit wait; none is lost. First attempts and retries count together. This is for
        the webhook at {webhook.url}.
      </Text>
      <NumberInput
        label="Deliveries a second"
        description="From 1 to 10,000. Leave it empty for no limit."
        placeholder="No limit"
        min={1}
        max={10_000}
        allowDecimal={false}
        allowNegative={false}
        thousandSeparator=","
        value={limit}
        onChange={setTyped}
        data-autofocus
      />
    </ConfirmDialog>
  );
}
