import type { MessageInitShape } from "@bufbuild/protobuf";
import { TextInput, type TextInputProps } from "@mantine/core";
import type { UseFormReturnType } from "@mantine/form";
import { useState } from "react";
import {
  type UpdateWebhookRequestSchema,
  type Webhook,
  WebhookService,
} from "../../../../gen/webhook/v1/webhook_pb.ts";
import type { ErrorReason } from "../../../../src/contract/errors.ts";
import { failureReason } from "../../api/failure.ts";
import { useChange, useReadAnew } from "../../api/queries.ts";
import type { SaveFormProps } from "../../parts/dialogs.tsx";
import { notifyWarnings, type Saving, useSave } from "../../parts/save.ts";

/** The reason of the error if somebody else has changed the webhook. */
const CHANGED: ErrorReason = "REVISION_CHANGED";

type Changes = Omit<
  MessageInitShape<typeof UpdateWebhookRequestSchema>,
  "$typeName" | "webhookId" | "revision"
>;

/** The state of saving the settings of a webhook. */
export interface WebhookUpdate {
  /** The webhook as it was when its values were put into the fields: the page reads it anew meanwhile. */
  base: Webhook;
  /** The properties of the form's {@link SaveForm}. */
  form: Pick<SaveFormProps, "saving" | "changed">;
  /** Saves the changes; whether that worked. Shows the errors of fields at the fields. */
  save(changes: Changes): Promise<boolean>;
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
  fieldOf?: (field: string) => string,
): WebhookUpdate {
  const update = useChange(WebhookService.method.updateWebhook);
  const [base, setBase] = useState(webhook);
  const { save, ...props } = useWebhookSave(useSave(form, fieldOf), () => {
    setBase(webhook);
    form.setValues(valuesOf(webhook));
  });
  return {
    base,
    form: props,
    save: (changes) =>
      save(async () => {
        const { warnings } = await update({ ...changes, webhookId: base.id, revision: base.revision });
        notifyWarnings(warnings);
      }),
  };
}

/**
 * Saves settings of a webhook with the revision that they had when the fields were filled. If somebody else has changed it since, the
 * webhook is read anew.
 *
 * @param takeCurrent puts the current values into the fields
 */
export function useWebhookSave(saving: Saving, takeCurrent: () => void) {
  const readAnew = useReadAnew();
  async function orReadAnew(error: unknown): Promise<never> {
    if (failureReason(error) === CHANGED) await readAnew(WebhookService);
    throw error;
  }
  function onReload() {
    saving.reset();
    takeCurrent();
  }
  return {
    saving,
    changed: failureReason(saving.failure) === CHANGED && { what: "webhook", onReload },
    save: (run: () => Promise<unknown>) => saving.save(() => run().catch(orReadAnew)),
  };
}

/** The URL of a webhook's endpoint, in a form; `input` is what the form gives for it. */
export function UrlField(input: TextInputProps) {
  return (
    <TextInput
      label="URL"
      description="HTTPS endpoint that receives the POST. It needs a public address, unless the operator allows others."
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
