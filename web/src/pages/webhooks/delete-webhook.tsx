import { useMutation } from "@connectrpc/connect-query";
import { Radio, Stack, Text } from "@mantine/core";
import { notifications } from "@mantine/notifications";
import { useState } from "react";
import { generatePath, useNavigate } from "react-router";
import { EndpointService } from "../../../../gen/webhook/v1/endpoint_pb.ts";
import { WebhookService } from "../../../../gen/webhook/v1/webhook_pb.ts";
import { processName } from "../../../../src/contract/catalogue.ts";
import { PAGE_PATHS } from "../../../../src/contract/page-paths.ts";
import { useReadAnew } from "../../api/queries.ts";
import { ConfirmDialog } from "../../parts/dialogs.tsx";
import { cancelInWords, typesInWords, useEndpoint, useUndelivered, WebhookInWords } from "./endpoint.tsx";
import type { WebhookDialogProps } from "./webhook-form.tsx";

/**
 * Asks before a webhook or its whole endpoint is deleted, says what becomes of the deliveries, and goes back to the list; to the
 * page of another event type, if there is one left.
 */
export function DeleteWebhook({ webhook, opened, onClose }: WebhookDialogProps) {
  const { webhooks, isKnown } = useEndpoint(webhook);
  const remove = useMutation(WebhookService.method.deleteWebhook);
  const removeAll = useMutation(EndpointService.method.deleteEndpoint);
  const readAnew = useReadAnew();
  const navigate = useNavigate();
  const undelivered = useUndelivered(webhook.id, opened);
  const [asked, setAsked] = useState<"webhook" | "endpoint">("webhook");
  const isShared = webhooks.length > 1;
  const all = isShared && asked === "endpoint";
  const other = webhooks.find(({ id }) => id !== webhook.id);

  function close() {
    setAsked("webhook");
    onClose();
  }

  async function run() {
    if (all) await removeAll.mutateAsync({ endpointId: webhook.endpointId ?? "" });
    else await remove.mutateAsync({ webhookId: webhook.id });
    notifications.show({
      color: "green",
      title: all ? "The endpoint is deleted" : "The webhook is deleted",
      message: `${typesInWords(all ? webhooks : [webhook])} ${all ? "are" : "is"} no longer sent to ${webhook.url}`,
    });
    const next =
      other && !all ? generatePath(PAGE_PATHS.webhook, { id: String(other.id) }) : PAGE_PATHS.webhooks;
    await navigate(next, { replace: true });
    void readAnew(WebhookService);
  }

  return (
    <ConfirmDialog
      opened={opened}
      onClose={close}
      title={
        !isKnown ? "Delete" : isShared ? "Delete this event type or the endpoint?" : "Delete this webhook?"
      }
      confirm={
        !isKnown ? "Delete" : all ? "Delete endpoint" : isShared ? "Delete event type" : "Delete webhook"
      }
      danger
      // The question names all event types that are deleted, so it waits until they are known.
      ready={isKnown}
      onConfirm={run}
    >
      <WebhookInWords webhook={webhook} alone={isKnown && !all} />
      {isShared && (
        <Radio.Group
          label="What is deleted?"
          value={asked}
          onChange={(value) => setAsked(value === "endpoint" ? "endpoint" : "webhook")}
        >
          <Stack gap="sm" mt="xs">
            <Radio
              value="webhook"
              label={`${processName(webhook.webhookProcess)} only`}
              description="The other event types are still sent to the URL."
            />
            <Radio
              value="endpoint"
              label={`The endpoint with all ${webhooks.length} event types`}
              description={typesInWords(webhooks)}
            />
          </Stack>
        </Radio.Group>
      )}
      <Text size="sm" mih="4lh" hidden={!isKnown}>
        {all ? (
          "No more events are sent there. Undelivered deliveries are cancelled."
        ) : (
          <>
            {isShared ? "No more events of this type are sent there." : "No more events are sent there."}{" "}
            {cancelInWords(undelivered)}
          </>
        )}{" "}
        Past deliveries stay in the log.
        {(all || !isShared) && " The signing secret is deleted; registering the URL again creates a new one."}
      </Text>
    </ConfirmDialog>
  );
}
