import { Alert, NumberInput, Stack, TextInput } from "@mantine/core";
import { useForm } from "@mantine/form";
import { notifications } from "@mantine/notifications";
import { IconArrowRight } from "@tabler/icons-react";
import type { Webhook } from "../../../../../gen/webhook/v1/webhook_pb.ts";
import { FormActions, FormDialog } from "../../../parts/dialogs/form-dialog.tsx";
import { fromOne } from "../../../parts/dialogs/from-one.ts";
import { UpdateFailure } from "../actions/update-failure.tsx";
import { UrlField } from "../actions/url-field.tsx";
import { useUndelivered } from "../actions/use-undelivered.ts";
import { useWebhookUpdate } from "../actions/use-webhook-update.ts";
import type { WebhookDialogProps } from "../actions/webhook-dialog-props.ts";
import { SharedNote } from "../endpoint/shared-note.tsx";
import {
  MovedCredentials,
  movedChanges,
  movedErrors,
  movedField,
  NO_MOVED_VALUES,
  useMovedSettings,
} from "../request/moved-credentials.tsx";

/** Changes the name, the URL and the rate limit of a webhook. */
export function EditWebhook({ webhook, opened, onClose }: WebhookDialogProps) {
  return (
    <FormDialog opened={opened} onClose={onClose} title="Edit webhook">
      <Form webhook={webhook} onClose={onClose} />
    </FormDialog>
  );
}

const valuesOf = ({ name, url, rateLimit }: Webhook) => ({
  name: name ?? "",
  url,
  rateLimit: (rateLimit ?? "") as number | string,
  ...NO_MOVED_VALUES,
});

function Form({ webhook, onClose }: { webhook: Webhook; onClose: () => void }) {
  const movedSettings = useMovedSettings(webhook);
  const form = useForm({
    initialValues: valuesOf(webhook),
    validate: (values) => ({
      url: values.url.trim() === "" ? "Enter the URL of the endpoint." : null,
      rateLimit: fromOne("no limit")(values.rateLimit),
      ...movedErrors(movedSettings(values.url), values),
    }),
  });
  const update = useWebhookUpdate(webhook, form, valuesOf, movedField);
  const moves = form.values.url.trim() !== update.base.url;
  const moved = movedSettings(form.values.url);

  const submit = form.onSubmit(async (values) => {
    const { name, url, rateLimit } = values;
    const changes = {
      name: name.trim(),
      url: url.trim(),
      rateLimit: rateLimit === "" ? 0 : Number(rateLimit),
      ...movedChanges(movedSettings(url), values),
    };
    if (!(await update.save(changes))) return;
    notifications.show({
      color: "green",
      title: "Changes saved",
      message: moves ? "Undelivered deliveries go to the new URL." : "",
    });
    onClose();
  });

  return (
    <form onSubmit={submit} noValidate>
      <Stack>
        <TextInput
          label="Name"
          description="Shown in place of the URL. Leave it empty for none."
          placeholder="Shop orders"
          maxLength={100}
          autoComplete="off"
          data-autofocus
          {...form.getInputProps("name")}
        />
        <UrlField {...form.getInputProps("url")} />
        {moves && <Moves webhookId={webhook.id} />}
        {moved && <MovedCredentials settings={moved} form={form} />}
        <NumberInput
          label="Deliveries a second"
          description="From 1 to 10,000, first attempts and retries together. Deliveries beyond the limit wait. Leave it empty for no limit."
          placeholder="No limit"
          min={1}
          max={10_000}
          allowDecimal={false}
          allowNegative={false}
          thousandSeparator=","
          {...form.getInputProps("rateLimit")}
        />
        <SharedNote webhook={webhook} />
        <UpdateFailure {...update} />
        <FormActions submit="Save changes" busy={update.busy} onCancel={onClose} />
      </Stack>
    </form>
  );
}

/** Says what happens to deliveries when the URL changes. */
function Moves({ webhookId }: { webhookId: bigint }) {
  const undelivered = useUndelivered(webhookId, true);
  const waiting =
    undelivered === ""
      ? "No delivery waits at the moment."
      : undelivered === undefined
        ? "Undelivered deliveries go to the new URL."
        : `${undelivered.charAt(0).toUpperCase()}${undelivered.slice(1)} not delivered yet ${undelivered === "1 delivery" ? "goes" : "go"} to the new URL.`;
  return (
    <Alert color="ink" variant="light" icon={<IconArrowRight />} title="The URL changes" role="status">
      {waiting} Retries keep their planned times. The signing secret, the id and the log stay.
    </Alert>
  );
}
