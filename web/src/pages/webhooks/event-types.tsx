import { callUnaryMethod, useTransport } from "@connectrpc/connect-query";
import { Alert, Group, Stack, Text } from "@mantine/core";
import { useForm } from "@mantine/form";
import { IconPencil, IconPlus, IconTrash } from "@tabler/icons-react";
import { useState } from "react";
import { useNavigate } from "react-router";
import { EndpointService } from "../../../../gen/webhook/v1/endpoint_pb.ts";
import type { WebhookProcess } from "../../../../gen/webhook/v1/event_pb.ts";
import { type Webhook, WebhookService } from "../../../../gen/webhook/v1/webhook_pb.ts";
import { useEventTypes } from "../../api/event-types.ts";
import { useReadAnew } from "../../api/queries.ts";
import { useMay } from "../../api/session.tsx";
import { typeName } from "../../api/type-names.ts";
import { FormButton, SaveForm } from "../../parts/dialogs.tsx";
import { Failure } from "../../parts/failure.tsx";
import { PageLink, webhookPage } from "../../parts/inline.tsx";
import { Section } from "../../parts/page.tsx";
import { notifyDone, useSave } from "../../parts/save.ts";
import { WebhookHealthBadges } from "../../parts/states.tsx";
import { cancelInWords, typesInWords, useEndpoint, useUndelivered } from "./endpoint.tsx";
import { EventTypesSelect } from "./event-types-select.tsx";

/** The event types that are sent to a webhook's endpoint, each with a link to its page, and the button that changes them. */
export function EventTypesSection({ webhook }: { webhook: Webhook }) {
  const mayWrite = useMay("Write_Administrative_Data");
  const { webhooks, isKnown, error, retry } = useEndpoint(webhook);
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
          <FormButton
            leftSection={isShared ? <IconPencil size={16} /> : <IconPlus size={16} />}
            disabled={!isKnown}
            title="Event types"
            form={(close) => <Form webhook={webhook} webhooks={webhooks} onClose={close} />}
          >
            {isShared ? "Change event types" : "Add event types"}
          </FormButton>
        )
      }
    >
      <Failure error={error} onRetry={retry} />
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
    </Section>
  );
}

function TypeLink({ of: webhook, isCurrent }: { of: Webhook; isCurrent: boolean }) {
  if (isCurrent) {
    return (
      <Text size="sm" fw={600} aria-current="page" style={{ overflowWrap: "anywhere" }}>
        {typeName(webhook)}
      </Text>
    );
  }
  return (
    <PageLink to={webhookPage(webhook.id)} style={{ overflowWrap: "anywhere" }}>
      {typeName(webhook)}
    </PageLink>
  );
}

interface FormProps {
  webhook: Webhook;
  /** All webhooks of the endpoint. */
  webhooks: readonly Webhook[];
  onClose: () => void;
}

/** Adds event types to a webhook's endpoint and removes others. */
function Form({ webhook, webhooks, onClose }: FormProps) {
  const transport = useTransport();
  const saving = useSave();
  const types = useEventTypes();
  const readAnew = useReadAnew();
  const navigate = useNavigate();
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
    await saving.save(async () => {
      const { endpoint } = await callUnaryMethod(transport, EndpointService.method.updateEndpoint, {
        target: { case: "webhookId", value: webhook.id },
        addProcesses: added,
        removeProcesses: removed.map(({ webhookProcess }) => webhookProcess),
      });
      notifyDone(`The endpoint gets ${typesInWords(endpoint?.webhooks ?? [])}.`, "Event types changed");
      const [first] = endpoint?.webhooks ?? [];
      // The page of a deleted webhook has nothing to show.
      if (first && removed.some(({ id }) => id === webhook.id))
        await navigate(webhookPage(first.id), { replace: true });
      void readAnew(WebhookService);
      onClose();
    });
  });

  return (
    <SaveForm saving={saving} onSubmit={submit} onCancel={onClose} submit="Save event types">
      <EventTypesSelect eventTypes={types.data ?? []} {...form.getInputProps("processes")} />
      {removed.map((each) => (
        <Removed key={String(each.id)} webhook={each} />
      ))}
    </SaveForm>
  );
}

/** Says what becomes of the deliveries of an event type that is removed. */
function Removed({ webhook }: { webhook: Webhook }) {
  const undelivered = useUndelivered(webhook.id, true);
  return (
    <Alert color="orange" icon={<IconTrash />} role="status" title={`${typeName(webhook)} is removed`}>
      {cancelInWords(undelivered)} Past deliveries stay in the log.
    </Alert>
  );
}
