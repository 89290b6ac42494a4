import { Alert, NumberInput, type NumberInputProps, Stack, TextInput } from "@mantine/core";
import { useForm } from "@mantine/form";
import { notifications } from "@mantine/notifications";
import { IconArrowRight } from "@tabler/icons-react";
import type { Webhook } from "../../../../../gen/webhook/v1/webhook_pb.ts";
import {
  boundsOf,
  NUMBER_NAMES,
  type NumberName,
  numberSetting,
} from "../../../../../src/contract/webhooks/settings.ts";
import { useDeliveryTimeoutMs } from "../../../api/session.tsx";
import { FormActions, FormDialog } from "../../../parts/dialogs/form-dialog.tsx";
import { fromOne } from "../../../parts/dialogs/from-one.ts";
import { capitalized } from "../../../parts/text/capitalized.ts";
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

/** Changes the name, the URL and the numbers of a webhook's settings. */
export function EditWebhook({ webhook, opened, onClose }: WebhookDialogProps) {
  return (
    <FormDialog opened={opened} onClose={onClose} title="Edit webhook">
      <Form webhook={webhook} onClose={onClose} />
    </FormDialog>
  );
}

const valuesOf = (webhook: Webhook) => ({
  name: webhook.name ?? "",
  url: webhook.url,
  ...eachNumber((name) => {
    const value = webhook[name];
    return (value === undefined ? "" : value / numberSetting(name).field.factor) as number | string;
  }),
  ...NO_MOVED_VALUES,
});

function eachNumber<T>(of: (name: NumberName) => T): Record<NumberName, T> {
  return Object.fromEntries(NUMBER_NAMES.map((name) => [name, of(name)])) as Record<NumberName, T>;
}

function Form({ webhook, onClose }: { webhook: Webhook; onClose: () => void }) {
  const movedSettings = useMovedSettings(webhook);
  const form = useForm({
    initialValues: valuesOf(webhook),
    validate: (values) => ({
      url: values.url.trim() === "" ? "Enter the URL of the endpoint." : null,
      ...eachNumber((name) => fromOne(numberSetting(name).field.none)(values[name])),
      ...movedErrors(movedSettings(values.url), values),
    }),
  });
  const update = useWebhookUpdate(webhook, form, valuesOf, movedField);
  const moves = form.values.url.trim() !== update.base.url;
  const moved = movedSettings(form.values.url);

  const submit = form.onSubmit(async (values) => {
    const { name, url } = values;
    const changes = {
      name: name.trim(),
      url: url.trim(),
      // 1.001 × 1,000 is 1000.9999999999999, and the service takes whole numbers.
      ...eachNumber((each) => Math.round(Number(values[each]) * numberSetting(each).field.factor)),
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
        {NUMBER_NAMES.map((name) => (
          <NumberField key={name} name={name} {...form.getInputProps(name)} />
        ))}
        <SharedNote webhook={webhook} />
        <UpdateFailure {...update} />
        <FormActions submit="Save changes" busy={update.busy} onCancel={onClose} />
      </Stack>
    </form>
  );
}

/** The field of a setting that is a number. */
function NumberField({ name, ...input }: { name: NumberName } & NumberInputProps) {
  const { field } = numberSetting(name);
  const deliveryTimeoutMs = useDeliveryTimeoutMs();
  const bounds = boundsOf(name, deliveryTimeoutMs ?? Number.POSITIVE_INFINITY);
  const [from, to] = [bounds.min, bounds.max].map((bound) => bound / field.factor) as [number, number];
  const range = Number.isFinite(to) ? `from ${from} to ${to.toLocaleString("en")}` : `from ${from}`;
  return (
    <NumberInput
      label={field.label}
      description={`${field.unit}, ${range}. ${field.description} Leave it empty for ${field.none}.`}
      placeholder={capitalized(field.none)}
      min={from}
      {...(Number.isFinite(to) ? { max: to } : {})}
      allowDecimal={field.factor > 1}
      allowNegative={false}
      thousandSeparator=","
      {...input}
    />
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
        : `${capitalized(undelivered)} not delivered yet ${undelivered === "1 delivery" ? "goes" : "go"} to the new URL.`;
  return (
    <Alert color="ink" variant="light" icon={<IconArrowRight />} title="The URL changes" role="status">
      {waiting} Retries keep their planned times. The signing secret, the id and the log stay.
    </Alert>
  );
}
