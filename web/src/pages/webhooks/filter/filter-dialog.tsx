import { Anchor, Code, Stack, Text, Textarea } from "@mantine/core";
import { useForm } from "@mantine/form";
import { notifications } from "@mantine/notifications";
import type { Webhook } from "../../../../../gen/webhook/v1/webhook_pb.ts";
import { FormActions, FormDialog } from "../../../parts/dialogs/form-dialog.tsx";
import { UpdateFailure } from "../actions/update-failure.tsx";
import { useWebhookUpdate } from "../actions/use-webhook-update.ts";
import type { WebhookDialogProps } from "../actions/webhook-dialog-props.ts";
import { eventFields } from "./event-fields.ts";
import { FilterTrial } from "./tried-filter.tsx";

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
