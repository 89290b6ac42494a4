import { useMutation } from "@connectrpc/connect-query";
import { Text } from "@mantine/core";
import { useNavigate } from "react-router";
import { EndpointService } from "../../../../gen/webhook/v1/endpoint_pb.ts";
import { type Webhook, WebhookService } from "../../../../gen/webhook/v1/webhook_pb.ts";
import { PAGE_PATHS } from "../../../../src/contract/page-paths.ts";
import { useReadAnew } from "../../api/queries.ts";
import { typeName } from "../../api/type-names.ts";
import { ConfirmDialog, type DialogProps, RadioChoice, useDialogState } from "../../parts/dialogs.tsx";
import { webhookPage } from "../../parts/inline.tsx";
import { notifyDone } from "../../parts/save.ts";
import { cancelInWords, typesInWords, useEndpoint, useUndelivered, WebhookInWords } from "./endpoint.tsx";

/**
 * Asks before a webhook or its whole endpoint is deleted, says what becomes of the deliveries, and goes back to the list; to the
 * page of another event type, if there is one left.
 */
export function DeleteWebhook({ webhook, opened, onClose }: DialogProps & { webhook: Webhook }) {
  const { webhooks, isKnown } = useEndpoint(webhook);
  const remove = useMutation(WebhookService.method.deleteWebhook);
  const removeAll = useMutation(EndpointService.method.deleteEndpoint);
  const readAnew = useReadAnew();
  const navigate = useNavigate();
  const undelivered = useUndelivered(webhook.id, opened);
  const [asked, setAsked] = useDialogState<"webhook" | "endpoint">(opened, "webhook");
  const isShared = webhooks.length > 1;
  const all = isShared && asked === "endpoint";
  const other = webhooks.find(({ id }) => id !== webhook.id);

  async function run() {
    if (all) await removeAll.mutateAsync({ endpointId: webhook.endpointId ?? "" });
    else await remove.mutateAsync({ webhookId: webhook.id });
    notifyDone(
      `${typesInWords(all ? webhooks : [webhook])} ${all ? "are" : "is"} no longer sent to ${webhook.url}`,
      all ? "The endpoint is deleted" : "The webhook is deleted",
    );
    await navigate(other && !all ? webhookPage(other.id) : PAGE_PATHS.webhooks, { replace: true });
    void readAnew(WebhookService);
  }

  return (
    <ConfirmDialog
      opened={opened}
      onClose={onClose}
      title={
        isShared ? "Delete this event type or the endpoint?" : isKnown ? "Delete this webhook?" : "Delete"
      }
      confirm={`Delete${isKnown ? ` ${all ? "endpoint" : isShared ? "event type" : "webhook"}` : ""}`}
      danger
      // The question names all event types that are deleted, so it waits until they are known.
      ready={isKnown}
      onConfirm={run}
    >
      <WebhookInWords webhook={webhook} alone={isKnown && !all} />
      {isShared && (
        <RadioChoice
          label="What is deleted?"
          value={asked}
          onChange={setAsked}
          options={[
            {
              value: "webhook",
              label: `${typeName(webhook)} only`,
              description: "The other event types are still sent to the URL.",
            },
            {
              value: "endpoint",
              label: `The endpoint with all ${webhooks.length} event types`,
              description: typesInWords(webhooks),
            },
          ]}
        />
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
