import { useMutation } from "@connectrpc/connect-query";
import { Alert, Anchor, Button, Group, Stack, Text } from "@mantine/core";
import { useForm } from "@mantine/form";
import { useDisclosure } from "@mantine/hooks";
import { notifications } from "@mantine/notifications";
import { IconPencil, IconPlus, IconTrash } from "@tabler/icons-react";
import { useState } from "react";
import { generatePath, Link, useNavigate } from "react-router";
import { EndpointService } from "../../../../gen/webhook/v1/endpoint_pb.ts";
import type { WebhookProcess } from "../../../../gen/webhook/v1/event_pb.ts";
import { type Webhook, WebhookService } from "../../../../gen/webhook/v1/webhook_pb.ts";
import { processName } from "../../../../src/contract/catalogue.ts";
import { PAGE_PATHS } from "../../../../src/contract/page-paths.ts";
import { useReadAnew } from "../../api/queries.ts";
import { useMay } from "../../api/session.tsx";
import { FormActions, FormDialog } from "../../parts/dialogs.tsx";
import { Failure } from "../../parts/failure.tsx";
import { Section } from "../../parts/page.tsx";
import { WebhookHealthBadges } from "../../parts/states.tsx";
import { cancelInWords, useEndpoint, useUndelivered } from "./endpoint.tsx";
import { EventTypesSelect, useEventTypes } from "./event-types-select.tsx";
import type { WebhookDialogProps } from "./webhook-form.tsx";

/** The event types that are sent to a webhook's endpoint, each with a link to its page, and the button that changes them. */
export function EventTypesSection({ webhook }: { webhook: Webhook }) {
  const mayWrite = useMay("Write_Administrative_Data");
  const { webhooks, isKnown, error, retry } = useEndpoint(webhook);
  const [editing, { open, close }] = useDisclosure();
  const isShared = webhooks.length > 1;
  return (
    <Section
      title="Event types"
      description={
        isShared || !isKnown
          ? "They share the URL, the signing secret, the rate limit and all settings except filters."
          : "This endpoint gets one event type. Others can share its URL, its signing secret and its settings."
      }
      actions={
        mayWrite && (
          <Button
            variant="default"
            leftSection={isShared ? <IconPencil size={16} /> : <IconPlus size={16} />}
            onClick={open}
            disabled={!isKnown}
          >
            {isShared ? "Change event types" : "Add event types"}
          </Button>
        )
      }
    >
      {error !== null && <Failure error={error} onRetry={retry} />}
      <Stack
        component="ul"
        gap="xs"
        p={0}
        m={0}
        style={{ listStyle: "none" }}
        aria-label="Event types of this endpoint"
      >
        {webhooks.map((each) => (
          <Group key={String(each.id)} component="li" gap="sm" justify="space-between">
            <TypeLink of={each} isCurrent={each.id === webhook.id} />
            <WebhookHealthBadges webhook={each} />
          </Group>
        ))}
      </Stack>
      <EventTypesDialog webhook={webhook} webhooks={webhooks} opened={editing} onClose={close} />
    </Section>
  );
}

function TypeLink({ of: { id, webhookProcess }, isCurrent }: { of: Webhook; isCurrent: boolean }) {
  if (isCurrent) {
    return (
      <Text size="sm" fw={600} aria-current="page" style={{ overflowWrap: "anywhere" }}>
        {processName(webhookProcess)}
      </Text>
    );
  }
  return (
    <Anchor
      component={Link}
      to={generatePath(PAGE_PATHS.webhook, { id: String(id) })}
      size="sm"
      style={{ overflowWrap: "anywhere" }}
    >
      {processName(webhookProcess)}
    </Anchor>
  );
}

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
