import { callUnaryMethod, useTransport } from "@connectrpc/connect-query";
import { Accordion, Box, Button, Group, Stack, Switch, Text } from "@mantine/core";
import { useForm } from "@mantine/form";
import { notifications } from "@mantine/notifications";
import { IconSend, IconWebhook } from "@tabler/icons-react";
import { Link, useNavigate } from "react-router";
import { EndpointService } from "../../../../gen/webhook/v1/endpoint_pb.ts";
import type { WebhookProcess } from "../../../../gen/webhook/v1/event_pb.ts";
import { type EventType, type Webhook, WebhookService } from "../../../../gen/webhook/v1/webhook_pb.ts";
import { PAGE_PATHS } from "../../../../src/contract/page-paths.ts";
import { useEventType, useEventTypes } from "../../api/event-types.ts";
import { isReachable, useLive, useReadAnew } from "../../api/queries.ts";
import { useMay } from "../../api/session.tsx";
import { SaveForm } from "../../parts/dialogs.tsx";
import { Failure, Loading, notifyFailure, Refreshed } from "../../parts/failure.tsx";
import { listPage, webhookPage } from "../../parts/inline.tsx";
import { Empty } from "../../parts/lists.tsx";
import { BackLink, PageTitle, Section } from "../../parts/page.tsx";
import { notifyDone, notifyWarnings, useSave } from "../../parts/save.ts";
import { CodeBlock } from "../../parts/text/copy.tsx";
import { layOutJson } from "../../parts/text/json-text.ts";
import { addressInFull } from "../../parts/text/words.ts";
import { useUrlFilters } from "../../parts/url-filters.ts";
import { typesInWords, useEndpoint } from "./endpoint.tsx";
import { EventTypesSelect } from "./event-types-select.tsx";
import { LiveTestOutcome, useLiveTest } from "./live-test.tsx";
import { NO_OWN_SECRET, OwnSecret, ownSecret } from "./own-secret.tsx";
import { Verify } from "./verify.tsx";
import { UrlField } from "./webhook-form.tsx";

const PARAMETERS = ["webhook"] as const;

/** Registers a URL for one or several event types, and tests it: a page of two steps. */
export default function NewWebhookPage() {
  const [{ webhook: id }] = useUrlFilters(PARAMETERS);
  const mayWrite = useMay("Write_Administrative_Data");
  return (
    <>
      <BackLink to={PAGE_PATHS.webhooks}>All webhooks</BackLink>
      <PageTitle title="New webhook" />
      {!mayWrite ? (
        <Empty title="Your key may not register webhooks" icon={<IconWebhook />}>
          A key with Write_Administrative_Data can.
        </Empty>
      ) : /^\d{1,18}$/.test(id) ? (
        <TestStep id={BigInt(id)} />
      ) : (
        <Form />
      )}
    </>
  );
}

/** The interval between refreshes, in milliseconds. */
const REFRESH_MS = 5_000;

function TestStep({ id }: { id: bigint }) {
  const query = useLive(WebhookService.method.getWebhook, { webhookId: id }, REFRESH_MS);
  return (
    <Refreshed query={query} loading={<Loading lines={6} />}>
      {({ webhook }) => webhook && <Tested webhook={webhook} />}
    </Refreshed>
  );
}

function Tested({ webhook }: { webhook: Webhook }) {
  const { webhooks } = useEndpoint(webhook);
  const test = useLiveTest(webhook);
  const accepted = test.outcome?.accepted === true;
  return (
    <Stack gap="lg">
      <Section
        title="2 of 2: Test it"
        description={`Events of ${typesInWords(webhooks)} are sent to ${addressInFull(webhook.url)} from now on. The test sends a sample, signed as every delivery.`}
      >
        <Group gap="sm">
          <Button
            variant={accepted ? "default" : "filled"}
            leftSection={<IconSend size={16} />}
            loading={test.busy}
            onClick={() => void test.run()}
            autoFocus
          >
            {test.outcome ? "Test again" : "Test now"}
          </Button>
          <Button component={Link} to={webhookPage(webhook.id)} variant={accepted ? "filled" : "default"}>
            Open the webhook
          </Button>
        </Group>
        <LiveTestOutcome test={test} />
      </Section>
      <Verify webhook={webhook} />
    </Stack>
  );
}

function Form() {
  const types = useEventTypes();
  // The form is there at once; its choices follow.
  const eventTypes = types.data ?? [];
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
        notifyDone("", `${what} registered`);
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
      // In place of the form: Back leads to the list. Another app's webhook has no page here.
      const replace = { replace: true };
      if (!webhook || !isReachable(webhook)) await navigate(PAGE_PATHS.webhooks, replace);
      else if (!created) await navigate(webhookPage(webhook.id), replace);
      else await navigate(listPage(PAGE_PATHS.newWebhook, { webhook: String(webhook.id) }), replace);
    }),
  );

  return (
    <Section title="1 of 2: What is sent, and where">
      <Failure error={types.error} onRetry={types.refetch} />
      <Box maw={720}>
        <SaveForm
          saving={saving}
          onSubmit={submit}
          onCancel={() => void navigate(PAGE_PATHS.webhooks)}
          submit="Register webhook"
        >
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
      </Box>
    </Section>
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
