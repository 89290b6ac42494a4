import { useMutation } from "@connectrpc/connect-query";
import { Alert, Anchor, Button, Code, Stack, Text, Textarea } from "@mantine/core";
import { useForm } from "@mantine/form";
import {
  type TryWebhookFilterResponse,
  type Webhook,
  WebhookService,
} from "../../../../gen/webhook/v1/webhook_pb.ts";
import { FILTER_FUNCTIONS } from "../../../../src/contract/filters/function-list.ts";
import { useEventType } from "../../api/event-types.ts";
import { fieldFailures } from "../../api/failure.ts";
import { useMay } from "../../api/session.tsx";
import { FormButton, SaveForm } from "../../parts/dialogs.tsx";
import { Failure } from "../../parts/failure.tsx";
import { Dimmed, eventPage } from "../../parts/inline.tsx";
import { DataTable } from "../../parts/listing.tsx";
import { Section } from "../../parts/page.tsx";
import { notifyDone } from "../../parts/save.ts";
import { CodeBlock, ShortId } from "../../parts/text/copy.tsx";
import { countOf } from "../../parts/text/words.ts";
import { Time } from "../../parts/time.tsx";
import { useWebhookUpdate } from "./webhook-form.tsx";

/** Says that evaluating the filter takes too long, if it does. */
function SlowFilter({ webhook: { filterSlow, filterStopped } }: { webhook: Webhook }) {
  if (filterStopped)
    return (
      <Alert color="red" title="The filter is switched off: all events are sent" mb="sm">
        Ten evaluations in succession took longer than the time limit, <Time value={filterStopped} />. Change
        the filter to switch it on.
      </Alert>
    );
  if (!filterSlow) return null;
  return (
    <Alert color="yellow" title="The filter is slow" mb="sm">
      An evaluation took longer than the time limit, <Time value={filterSlow} />: the event was sent. After
      ten in succession, the filter is switched off.
    </Alert>
  );
}

/** The filter of a webhook's events. */
export function FilterSection({ webhook }: { webhook: Webhook }) {
  const mayWrite = useMay("Write_Administrative_Data");
  return (
    <Section
      title="Filter"
      description="Only events that match are sent. The deliveries of the others end as filtered."
      actions={
        mayWrite && (
          <FormButton title="Filter" form={(close) => <Form webhook={webhook} onClose={close} />}>
            Change…
          </FormButton>
        )
      }
    >
      <SlowFilter webhook={webhook} />
      {webhook.filter === undefined ? (
        <Dimmed>None: every event of this type is sent.</Dimmed>
      ) : (
        <CodeBlock of="the filter" wraps>
          {webhook.filter}
        </CodeBlock>
      )}
    </Section>
  );
}

const valuesOf = ({ filter = "" }: Webhook) => ({ filter });

/** Changes the filter of a webhook. It can be tried on the latest events before it is saved. */
function Form({ webhook, onClose }: { webhook: Webhook; onClose: () => void }) {
  const form = useForm({ initialValues: valuesOf(webhook) });
  const update = useWebhookUpdate(webhook, form, valuesOf);
  const filter = form.values.filter.trim();

  const submit = form.onSubmit(async () => {
    if (!(await update.save({ filter }))) return;
    notifyDone(filter === "" ? "Every event of this type is sent" : "The filter is saved");
    onClose();
  });

  return (
    <SaveForm {...update.form} onSubmit={submit} onCancel={onClose} submit="Save">
      <Textarea
        label="Events to send"
        description={
          <>
            An expression in{" "}
            <Anchor href="https://cel.dev" target="_blank" inherit underline="always">
              CEL
            </Anchor>{" "}
            that is true for them, such as <Code>event.carrier == "DHL"</Code>. Leave it empty to send all.
          </>
        }
        data-autofocus
        autosize
        minRows={3}
        maxRows={12}
        maxLength={1_000}
        spellCheck={false}
        styles={{ input: { fontFamily: "var(--mantine-font-family-monospace)" } }}
        {...form.getInputProps("filter")}
      />
      <Fields process={webhook.webhookProcess} />
      <Functions />
      <FilterTrial
        webhookId={webhook.id}
        filter={filter}
        onInvalid={(fault) => form.setFieldError("filter", fault)}
      />
    </SaveForm>
  );
}

function Fields({ process }: { process: number }) {
  const { data, error, refetch } = useEventType(process);
  return (
    <details>
      <Text component="summary" size="sm">
        Fields of the event
      </Text>
      <Stack gap={2} mt="xs">
        <Failure error={error} onRetry={refetch} />
        {data?.filterFields.map(({ path, type }) => (
          <Text key={path} size="sm">
            <Code>{path}</Code> {type}
          </Text>
        ))}
      </Stack>
    </details>
  );
}

function Functions() {
  return (
    <details>
      <Text component="summary" size="sm">
        Functions
      </Text>
      {Object.entries(FILTER_FUNCTIONS).map(([subject, uses]) => (
        <Stack key={subject} gap={2} mt="xs">
          <Text size="sm" fw={500}>
            {subject}
          </Text>
          {uses.map((use) => (
            <Code key={use} style={{ alignSelf: "flex-start" }}>
              {use}
            </Code>
          ))}
        </Stack>
      ))}
    </details>
  );
}

interface FilterTrialProps {
  webhookId: bigint;
  /** The filter in the field. */
  filter: string;
  /** Receives the error of an invalid filter. */
  onInvalid: (fault: string) => void;
}

/** Tries a filter on the latest events, and shows what it would do with them until the filter changes. */
function FilterTrial({ webhookId, filter, onInvalid }: FilterTrialProps) {
  const trial = useMutation(WebhookService.method.tryWebhookFilter, {
    onError(error) {
      const fault = fieldFailures(error).filter;
      if (fault !== undefined) onInvalid(fault);
    },
  });
  const isCurrent = trial.variables?.filter === filter;
  const isInvalid = trial.error !== null && fieldFailures(trial.error).filter !== undefined;
  return (
    <>
      <Button
        variant="default"
        style={{ alignSelf: "flex-start" }}
        loading={trial.isPending}
        disabled={filter === ""}
        onClick={() => trial.mutate({ webhookId, filter })}
      >
        Try on the latest events
      </Button>
      {isCurrent && trial.error && !isInvalid && <Failure error={trial.error} />}
      {isCurrent && trial.data && <Result result={trial.data} />}
    </>
  );
}

function Result({ result: { examined, matched, failed, events } }: { result: TryWebhookFilterResponse }) {
  if (examined === 0) return <Text size="sm">There are no events of this type yet to try it on.</Text>;
  return (
    <Stack gap="xs" role="status">
      <Text size="sm">
        {matched.toLocaleString("en-US")} of the latest {countOf(examined, "event", "events")} match
        {failed > 0 && `; ${failed.toLocaleString("en-US")} are sent because it cannot be evaluated`}.
      </Text>
      <DataTable
        items={events}
        keyOf={({ eventId }) => eventId}
        columns={[
          { name: "Published", cell: ({ published }) => <Time value={published} relative /> },
          {
            name: "Event",
            cell: ({ subject, eventId: id }) =>
              subject ?? <ShortId id={id} of="the event’s id" to={eventPage(id)} />,
          },
          { name: "Result", cell: ({ sent, error }) => (sent ? (error ?? "Sent") : "Filtered") },
        ]}
      />
    </Stack>
  );
}
