import { type DescField, ScalarType } from "@bufbuild/protobuf";
import { useMutation } from "@connectrpc/connect-query";
import { Alert, Anchor, Button, Code, Stack, Table, Text, Textarea } from "@mantine/core";
import { useForm } from "@mantine/form";
import { useDisclosure } from "@mantine/hooks";
import { notifications } from "@mantine/notifications";
import { generatePath } from "react-router";
import {
  type TryWebhookFilterResponse,
  type Webhook,
  WebhookService,
} from "../../../../gen/webhook/v1/webhook_pb.ts";
import { catalogue } from "../../../../src/contract/catalogue.ts";
import { PAGE_PATHS } from "../../../../src/contract/page-paths.ts";
import { fieldFailures } from "../../api/failure.ts";
import { useMay } from "../../api/session.tsx";
import { FormActions, FormDialog } from "../../parts/dialogs.tsx";
import { Failure } from "../../parts/failure.tsx";
import { useFocusBack } from "../../parts/focus.ts";
import { Section } from "../../parts/page.tsx";
import { CodeBlock, ShortId } from "../../parts/text/copy.tsx";
import { countOf } from "../../parts/text/words.ts";
import { Time } from "../../parts/time.tsx";
import { UpdateFailure, useWebhookUpdate, type WebhookDialogProps } from "./webhook-form.tsx";

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
  const [editing, { open, close }] = useDisclosure();
  const mayWrite = useMay("Write_Administrative_Data");
  useFocusBack(editing);
  return (
    <Section
      title="Filter"
      description="Only events that match are sent. The deliveries of the others end as filtered."
      actions={
        mayWrite && (
          <Button variant="default" size="xs" onClick={open}>
            Change…
          </Button>
        )
      }
    >
      <SlowFilter webhook={webhook} />
      {webhook.filter === undefined ? (
        <Text size="sm" c="dimmed">
          None: every event of this type is sent.
        </Text>
      ) : (
        <CodeBlock of="the filter" wraps>
          {webhook.filter}
        </CodeBlock>
      )}
      <FilterDialog webhook={webhook} opened={editing} onClose={close} />
    </Section>
  );
}

/** Changes the filter of a webhook. It can be tried on the latest events before it is saved. */
export function FilterDialog({ webhook, opened, onClose }: WebhookDialogProps) {
  return (
    <FormDialog opened={opened} onClose={onClose} title="Filter">
      <Form webhook={webhook} onClose={onClose} />
    </FormDialog>
  );
}

interface Values {
  filter: string;
}

const valuesOf = ({ filter = "" }: Webhook): Values => ({ filter });

function Form({ webhook, onClose }: { webhook: Webhook; onClose: () => void }) {
  const form = useForm<Values>({ initialValues: valuesOf(webhook) });
  const update = useWebhookUpdate(webhook, form, valuesOf);
  const filter = form.values.filter.trim();

  const submit = form.onSubmit(async () => {
    if (!(await update.save({ filter }))) return;
    const message = filter === "" ? "Every event of this type is sent" : "The filter is saved";
    notifications.show({ color: "green", message });
    onClose();
  });

  return (
    <form onSubmit={submit} noValidate>
      <Stack>
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
        <FilterTrial
          webhookId={webhook.id}
          filter={filter}
          onInvalid={(fault) => form.setFieldError("filter", fault)}
        />
        <UpdateFailure {...update} />
        <FormActions submit="Save" busy={update.busy} onCancel={onClose} />
      </Stack>
    </form>
  );
}

function Fields({ process }: { process: number }) {
  return (
    <details>
      <Text component="summary" size="sm">
        Fields of the event
      </Text>
      <Stack gap={2} mt="xs">
        {eventFields(process).map(({ path, type }) => (
          <Text key={path} size="sm">
            <Code>{path}</Code> {type}
          </Text>
        ))}
      </Stack>
    </details>
  );
}

export interface FilterTrialProps {
  webhookId: bigint;
  /** The filter in the field. */
  filter: string;
  /** Receives the error of an invalid filter. */
  onInvalid: (fault: string) => void;
}

/** Tries a filter on the latest events, and shows what it would do with them until the filter changes. */
export function FilterTrial({ webhookId, filter, onInvalid }: FilterTrialProps) {
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
      <Table>
        <Table.Thead>
          <Table.Tr>
            <Table.Th>Published</Table.Th>
            <Table.Th>Event</Table.Th>
            <Table.Th>Result</Table.Th>
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {events.map(({ eventId, published, subject, sent, error }) => (
            <Table.Tr key={eventId}>
              <Table.Td>
                <Time value={published} relative />
              </Table.Td>
              <Table.Td>
                {subject ?? (
                  <ShortId
                    id={eventId}
                    of="the event’s id"
                    to={generatePath(PAGE_PATHS.event, { id: eventId })}
                  />
                )}
              </Table.Td>
              <Table.Td>{sent ? (error ?? "Sent") : "Filtered"}</Table.Td>
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
    </Stack>
  );
}

/** A field of an event as a filter names it. */
export interface EventField {
  /** `event.order_number`. */
  path: string;
  /** `string`, `list of OrderLine`. */
  type: string;
}

/** The fields of an event type's payload, and those of the messages in its lists. */
export function eventFields(process: number): EventField[] {
  const payload = catalogue.find(({ number }) => number === process)?.payload;
  const fields = payload?.fields ?? [];
  return [
    { path: "user_id", type: "string" },
    ...fields.map((field) => ({ path: `event.${field.name}`, type: typeOf(field) })),
    ...fields.flatMap((field) =>
      field.fieldKind === "list" && field.message
        ? field.message.fields.map((each) => ({
            path: `event.${field.name}[0].${each.name}`,
            type: typeOf(each),
          }))
        : [],
    ),
  ];
}

function typeOf(field: DescField): string {
  const name = field.message?.name ?? field.enum?.name ?? scalarName(field.scalar);
  if (field.fieldKind === "list") return `list of ${name}`;
  return field.fieldKind === "map" ? `map to ${name}` : name;
}

function scalarName(scalar: ScalarType | undefined): string {
  switch (scalar) {
    case ScalarType.STRING:
      return "string";
    case ScalarType.BOOL:
      return "bool";
    case ScalarType.BYTES:
      return "bytes";
    case ScalarType.DOUBLE:
    case ScalarType.FLOAT:
      return "double";
    case ScalarType.UINT32:
    case ScalarType.UINT64:
    case ScalarType.FIXED32:
    case ScalarType.FIXED64:
      return "uint";
    default:
      return "int";
  }
}
