import { useMutation } from "@connectrpc/connect-query";
import { Alert, Stack } from "@mantine/core";
import { useForm } from "@mantine/form";
import { notifications } from "@mantine/notifications";
import { IconTrash } from "@tabler/icons-react";
import { useState } from "react";
import { generatePath, useNavigate } from "react-router";
import { EndpointService } from "../../../../../gen/webhook/v1/endpoint_pb.ts";
import type { WebhookProcess } from "../../../../../gen/webhook/v1/event_pb.ts";
import { type Webhook, WebhookService } from "../../../../../gen/webhook/v1/webhook_pb.ts";
import { processName } from "../../../../../src/contract/catalogue.ts";
import { PAGE_PATHS } from "../../../../../src/contract/page-paths.ts";
import { useReadAnew } from "../../../api/use-read-anew.ts";
import { FormActions, FormDialog } from "../../../parts/dialogs/form-dialog.tsx";
import { Failure } from "../../../parts/status/failure.tsx";
import { cancelInWords, useUndelivered } from "../actions/use-undelivered.ts";
import type { WebhookDialogProps } from "../actions/webhook-dialog-props.ts";
import { EventTypesSelect } from "../new/event-types-select.tsx";
import { useEventTypes } from "../new/use-event-types.ts";

interface EventTypesDialogProps extends WebhookDialogProps {
  /** All webhooks of the endpoint. */
  webhooks: readonly Webhook[];
}

/** Adds event types to a webhook's endpoint and removes others. */
export function EventTypesDialog(props: EventTypesDialogProps) {
  return (
    <FormDialog opened={props.opened} onClose={props.onClose} title="Event types">
      <Form {...props} />
    </FormDialog>
  );
}

function Form({ webhook, webhooks, onClose }: EventTypesDialogProps) {
  const update = useMutation(EndpointService.method.updateEndpoint);
  const types = useEventTypes();
  const readAnew = useReadAnew();
  const navigate = useNavigate();
  const [failure, setFailure] = useState<unknown>();
  // What others change meanwhile stays as they changed it.
  const [before] = useState(webhooks);
  const form = useForm({
    initialValues: { processes: before.map(({ webhookProcess }) => String(webhookProcess)) },
    validate: {
      processes: (processes) =>
        processes.length === 0 ? "Choose at least one event type. To remove all, delete the endpoint." : null,
    },
  });
  const chosen = form.values.processes.map((process) => Number(process) as WebhookProcess);
  const removed = before.filter(({ webhookProcess }) => !chosen.includes(webhookProcess));
  const added = chosen.filter((process) => before.every(({ webhookProcess }) => webhookProcess !== process));

  const submit = form.onSubmit(async () => {
    if (added.length + removed.length === 0) return onClose();
    setFailure(undefined);
    try {
      const { endpoint } = await update.mutateAsync({
        target: { case: "webhookId", value: webhook.id },
        addProcesses: added,
        removeProcesses: removed.map(({ webhookProcess }) => webhookProcess),
      });
      notifications.show({
        color: "green",
        title: "Event types changed",
        message: `The endpoint gets ${endpoint?.webhooks.map((each) => processName(each.webhookProcess)).join(", ")}.`,
      });
      const [first] = endpoint?.webhooks ?? [];
      // The page of a deleted webhook has nothing to show.
      if (first && removed.some(({ id }) => id === webhook.id))
        await navigate(generatePath(PAGE_PATHS.webhook, { id: String(first.id) }), { replace: true });
      void readAnew(WebhookService);
      onClose();
    } catch (error) {
      setFailure(error);
    }
  });

  return (
    <form onSubmit={submit} noValidate>
      <Stack>
        <EventTypesSelect eventTypes={types.data?.processes ?? []} {...form.getInputProps("processes")} />
        {removed.map((each) => (
          <Removed key={String(each.id)} webhook={each} />
        ))}
        {failure !== undefined && <Failure error={failure} />}
        <FormActions submit="Save event types" busy={update.isPending} onCancel={onClose} />
      </Stack>
    </form>
  );
}

/** Says what becomes of the deliveries of an event type that is removed. */
function Removed({ webhook }: { webhook: Webhook }) {
  const undelivered = useUndelivered(webhook.id, true);
  return (
    <Alert
      color="orange"
      variant="light"
      icon={<IconTrash />}
      role="status"
      title={`${processName(webhook.webhookProcess)} is removed`}
    >
      {cancelInWords(undelivered)} Past deliveries stay in the log.
    </Alert>
  );
}
