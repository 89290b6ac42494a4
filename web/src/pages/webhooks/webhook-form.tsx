import type { MessageInitShape } from "@bufbuild/protobuf";
import { useMutation } from "@connectrpc/connect-query";
import { TextInput, type TextInputProps } from "@mantine/core";
import type { UseFormReturnType } from "@mantine/form";
import { useState } from "react";
import {
  type UpdateWebhookRequestSchema,
  type Webhook,
  WebhookService,
} from "../../../../gen/webhook/v1/webhook_pb.ts";
import { failureReason, fieldFailures } from "../../api/failure.ts";
import { useReadAnew } from "../../api/queries.ts";
import { ChangedMeanwhile } from "../../parts/dialogs.tsx";
import { Failure } from "../../parts/failure.tsx";

/** The props of dialogs about one webhook. */
export interface WebhookDialogProps {
  webhook: Webhook;
  opened: boolean;
  onClose: () => void;
}

type Changes = Omit<
  MessageInitShape<typeof UpdateWebhookRequestSchema>,
  "$typeName" | "webhookId" | "revision"
>;

export interface WebhookUpdate {
  /** The webhook as it was when its values were put into the fields: the page reads it anew meanwhile. */
  base: Webhook;
  /** The error of the last save that belongs to no field; undefined without one. */
  failure: unknown;
  /** Whether somebody has changed the webhook since `base`, so that nothing was saved. */
  isStale: boolean;
  busy: boolean;
  /** Saves the changes; whether that worked. Shows the errors of fields at the fields. */
  save(changes: Changes): Promise<boolean>;
  /** Puts the values that the webhook has now into the fields. */
  takeCurrent(): void;
}

/**
 * Updates a webhook from a form's fields, unless it was changed after they were filled.
 *
 * @param valuesOf the values of the fields for a webhook
 * @param fieldOf the form's name of a field of the request; the same name by default
 */
export function useWebhookUpdate<Values>(
  webhook: Webhook,
  form: UseFormReturnType<Values>,
  valuesOf: (webhook: Webhook) => Values,
  fieldOf: (field: string) => string = (field) => field,
): WebhookUpdate {
  const update = useMutation(WebhookService.method.updateWebhook);
  const readAnew = useReadAnew();
  const [base, setBase] = useState(webhook);
  const [failure, setFailure] = useState<unknown>();

  async function save(changes: Changes): Promise<boolean> {
    setFailure(undefined);
    try {
      await update.mutateAsync({ ...changes, webhookId: base.id, revision: base.revision });
      await readAnew(WebhookService);
      return true;
    } catch (error) {
      const fields = Object.entries(fieldFailures(error)).map(([field, text]) => [fieldOf(field), text]);
      form.setErrors(Object.fromEntries(fields));
      if (failureReason(error) === "REVISION_CHANGED") await readAnew(WebhookService);
      if (fields.length === 0) setFailure(error);
      return false;
    }
  }

  function takeCurrent(): void {
    setBase(webhook);
    form.setValues(valuesOf(webhook));
    setFailure(undefined);
  }

  const isStale = failureReason(failure) === "REVISION_CHANGED";
  return { base, failure, isStale, busy: update.isPending, save, takeCurrent };
}

/**
 * The error of an update that was not saved, with a button for the current values if somebody else changed the
 * webhook.
 */
export function UpdateFailure({ failure, isStale, takeCurrent }: WebhookUpdate) {
  if (failure === undefined) return null;
  return isStale ? <ChangedMeanwhile what="webhook" onReload={takeCurrent} /> : <Failure error={failure} />;
}

/** The URL of a webhook's endpoint, in a form; `input` is what the form gives for it. */
export function UrlField(input: TextInputProps) {
  return (
    <TextInput
      label="URL"
      description="HTTPS endpoint that receives the POST. It must be reachable from the internet."
      placeholder="https://example.com/hooks"
      type="url"
      inputMode="url"
      autoComplete="off"
      spellCheck={false}
      required
      {...input}
    />
  );
}
