import { callUnaryMethod, useTransport } from "@connectrpc/connect-query";
import { Accordion, Stack, Switch, Text } from "@mantine/core";
import { useForm } from "@mantine/form";
import { notifications } from "@mantine/notifications";
import { useNavigate } from "react-router";
import { EndpointService } from "../../../../gen/webhook/v1/endpoint_pb.ts";
import type { WebhookProcess } from "../../../../gen/webhook/v1/event_pb.ts";
import { type EventType, WebhookService } from "../../../../gen/webhook/v1/webhook_pb.ts";
import { useEventType, useEventTypes } from "../../api/event-types.ts";
import { isReachable, useReadAnew } from "../../api/queries.ts";
import { type DialogProps, FormDialog, SaveForm } from "../../parts/dialogs.tsx";
import { Failure, notifyFailure } from "../../parts/failure.tsx";
import { webhookPage } from "../../parts/inline.tsx";
import { notifyDone, notifyWarnings, useSave } from "../../parts/save.ts";
import { CodeBlock } from "../../parts/text/copy.tsx";
import { layOutJson } from "../../parts/text/json-text.ts";
import { EventTypesSelect } from "./event-types-select.tsx";
import { NO_OWN_SECRET, OwnSecret, ownSecret } from "./own-secret.tsx";
import { UrlField } from "./webhook-form.tsx";

/** Registers a URL for one or several event types, and goes to the page of the first webhook. */
export function NewWebhook(dialog: DialogProps) {
  return (
    <FormDialog {...dialog} title="New webhook">
      <Fields onClose={dialog.onClose} />
    </FormDialog>
  );
}

function Fields({ onClose }: { onClose: () => void }) {
  const types = useEventTypes();
  if (types.isError) return <Failure error={types.error} onRetry={types.refetch} />;
  // The form is there at once; its choices follow.
  return <Form eventTypes={types.data ?? []} onClose={onClose} />;
}

function Form({ eventTypes, onClose }: { eventTypes: readonly EventType[]; onClose: () => void }) {
  const transport = useTransport();
  const { createWebhook, updateWebhook } = WebhookService.method;
  const readAnew = useReadAnew();
  const navigate = useNavigate();
  const form = useForm({
    initialValues: { processes: [] as string[], url: "", secret: NO_OWN_SECRET, circuitBreaker: false },
    // What else an address must be is for the service to say, which knows.
    validate: {
      processes: (processes) => (processes.length === 0 ? "Choose at least one event type." : null),
      url: (url) => (url.trim() === "" ? "Enter the URL of the endpoint." : null),
    },
  });
  const saving = useSave(form, (field) => (field === "process" ? "processes" : field));
  const chosen = form.values.processes.flatMap((process) =>
    eventTypes.filter(({ number }) => String(number) === process),
  );

  /** One event type needs no endpoint, and is returned if it is registered. */
  async function register(processes: WebhookProcess[], url: string, secret: { secret?: string }) {
    const [process = 0, ...others] = processes;
    if (others.length === 0) return callUnaryMethod(transport, createWebhook, { process, url, ...secret });
    const { endpoint, warnings } = await callUnaryMethod(transport, EndpointService.method.createEndpoint, {
      processes,
      url,
      ...secret,
    });
    const webhook = endpoint?.webhooks.find((each) => each.webhookProcess === process);
    return { webhook, created: true, warnings };
  }

  const submit = form.onSubmit(({ processes, url, secret, circuitBreaker }) =>
    saving.save(async () => {
      const numbers = processes.map((process) => Number(process) as WebhookProcess);
      const { webhook, created, warnings } = await register(numbers, url.trim(), ownSecret(secret));
      if (created) {
        const what = numbers.length === 1 ? "Webhook" : "Endpoint";
        notifyDone("Send a test event to verify delivery.", `${what} registered`);
        notifyWarnings(warnings);
      } else {
        notifications.show({
          color: "blue",
          title: "Already registered",
          message:
            warnings.join(". ") || "A webhook with this event type and URL exists. Nothing was changed.",
          autoClose: 10_000,
        });
      }
      if (webhook && created && circuitBreaker) {
        // The webhook is registered whatever comes of this: a failure is shown beside it.
        const changes = { webhookId: webhook.id, circuitBreaker: { enabled: true } };
        await callUnaryMethod(transport, updateWebhook, changes).catch((error) =>
          notifyFailure("The circuit breaker is off", error),
        );
      }
      void readAnew(WebhookService);
      // Another app's webhook has no page here.
      if (!webhook || !isReachable(webhook)) return onClose();
      // In place of the dialog: Back leads to the list.
      await navigate(webhookPage(webhook.id), { replace: true });
    }),
  );

  return (
    <SaveForm saving={saving} onSubmit={submit} onCancel={onClose} submit="Register webhook">
      <EventTypesSelect eventTypes={eventTypes} {...form.getInputProps("processes")} />
      <UrlField {...form.getInputProps("url")} />
      <Samples of={chosen} />
      <OwnSecret
        value={form.values.secret}
        onChange={(secret) => form.setFieldValue("secret", secret)}
        error={form.errors.secret}
      />
      <Switch
        label="Use a circuit breaker"
        description="Deliveries wait while the endpoint fails, and are sent once it accepts one again. The thresholds can be changed on the webhook’s page."
        {...form.getInputProps("circuitBreaker", { type: "checkbox" })}
      />
    </SaveForm>
  );
}

/** What one event type sends, or each of several on demand. */
function Samples({ of: types }: { of: readonly EventType[] }) {
  const [only, ...others] = types;
  if (!only) return null;
  if (others.length === 0) return <Sample of={only} />;
  return (
    <Accordion variant="contained" order={3}>
      {types.map((type) => (
        <Accordion.Item key={type.number} value={type.name}>
          <Accordion.Control>{type.name}</Accordion.Control>
          <Accordion.Panel>
            <Sample of={type} />
          </Accordion.Panel>
        </Accordion.Item>
      ))}
    </Accordion>
  );
}

function Sample({ of: { number, name, description } }: { of: EventType }) {
  const { data, error, refetch } = useEventType(number);
  return (
    <Stack gap={4}>
      <Text size="sm">{description}</Text>
      <Text size="sm" fw={500}>
        Example payload
      </Text>
      <Failure error={error} onRetry={refetch} />
      {data && (
        <CodeBlock of={`Sample of ${name}`} maxHeight={220}>
          {layOutJson(data.sample)}
        </CodeBlock>
      )}
    </Stack>
  );
}
