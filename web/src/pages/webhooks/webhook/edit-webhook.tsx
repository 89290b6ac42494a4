import { useMutation } from "@connectrpc/connect-query";
import { Alert, Button, NumberInput, Stack, Text, TextInput } from "@mantine/core";
import { useForm } from "@mantine/form";
import { notifications } from "@mantine/notifications";
import { IconArrowRight, IconRefresh } from "@tabler/icons-react";
import { useState } from "react";
import { type Webhook, WebhookService } from "../../../../../gen/webhook/v1/webhook_pb.ts";
import { failureReason, fieldFailures } from "../../../api/failure.ts";
import { useReadAnew } from "../../../api/use-read-anew.ts";
import { FormActions, FormDialog } from "../../../parts/dialogs/form-dialog.tsx";
import { Failure } from "../../../parts/status/failure.tsx";
import { useUndelivered } from "../actions/use-undelivered.ts";
import type { WebhookDialogProps } from "../actions/webhook-dialog-props.ts";

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
});

function Form({ webhook, onClose }: { webhook: Webhook; onClose: () => void }) {
  const update = useMutation(WebhookService.method.updateWebhook);
  const readAnew = useReadAnew();
  // The webhook as it was when its values were put into the fields: the page reads it anew meanwhile.
  const [base, setBase] = useState(webhook);
  const [failure, setFailure] = useState<unknown>();
  const form = useForm({
    initialValues: valuesOf(webhook),
    validate: { url: (url) => (url.trim() === "" ? "Enter the URL of the endpoint." : null) },
  });
  const moves = form.values.url.trim() !== base.url;
  const isStale = failureReason(failure) === "REVISION_CHANGED";

  const submit = form.onSubmit(async ({ name, url, rateLimit }) => {
    setFailure(undefined);
    try {
      await update.mutateAsync({
        webhookId: base.id,
        revision: base.revision,
        name: name.trim(),
        url: url.trim(),
        rateLimit: rateLimit === "" ? 0 : Number(rateLimit),
      });
      await readAnew(WebhookService);
      notifications.show({
        color: "green",
        title: "Changes saved",
        message: moves ? "Undelivered deliveries go to the new URL." : "",
      });
      onClose();
    } catch (error) {
      const fields = fieldFailures(error);
      form.setErrors(fields);
      if (failureReason(error) === "REVISION_CHANGED") await readAnew(WebhookService);
      if (Object.keys(fields).length === 0) setFailure(error);
    }
  });

  function takeCurrent() {
    setBase(webhook);
    form.setValues(valuesOf(webhook));
    setFailure(undefined);
  }

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
        <TextInput
          label="Address"
          description="HTTPS endpoint that receives the POST. It must be reachable from the internet."
          type="url"
          inputMode="url"
          autoComplete="off"
          spellCheck={false}
          required
          {...form.getInputProps("url")}
        />
        {moves && <Moves webhookId={base.id} />}
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
        {failure !== undefined &&
          (isStale ? (
            <Alert
              color="orange"
              variant="light"
              icon={<IconRefresh />}
              role="alert"
              title="This webhook was changed meanwhile"
            >
              <Stack align="flex-start" gap="sm">
                <Text size="sm">
                  Nothing was saved. Load the current values, then make your changes again.
                </Text>
                <Button size="xs" variant="default" onClick={takeCurrent}>
                  Load the current values
                </Button>
              </Stack>
            </Alert>
          ) : (
            <Failure error={failure} />
          ))}
        <FormActions submit="Save changes" busy={update.isPending} onCancel={onClose} />
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
