import { useMutation } from "@connectrpc/connect-query";
import { Stack, Text } from "@mantine/core";
import { useForm } from "@mantine/form";
import { notifications } from "@mantine/notifications";
import { useState } from "react";
import { type ApiKey, ApiKeyService } from "../../../../../gen/webhook/v1/api_key_pb.ts";
import { fieldFailures } from "../../../api/failure.ts";
import { useReadAnew } from "../../../api/use-read-anew.ts";
import { FormActions, FormDialog } from "../../../parts/dialogs/form-dialog.tsx";
import { Failure } from "../../../parts/status/failure.tsx";
import { QUOTA_RULES, QuotaFields, type QuotaValues, quotasOf, quotaValuesOf } from "./quota-fields.tsx";

/** Asks for the quotas of a key. */
export interface QuotasDialogProps {
  opened: boolean;
  onClose: () => void;
  /** The key; the one before while the dialog is closed. */
  apiKey: ApiKey | undefined;
}

/** Changes the quotas of a key. */
export function QuotasDialog({ opened, onClose, apiKey }: QuotasDialogProps) {
  return (
    <FormDialog opened={opened} onClose={onClose} title={`Quotas of “${apiKey?.name}”`}>
      <QuotasForm apiKey={apiKey} onClose={onClose} />
    </FormDialog>
  );
}

function QuotasForm({ apiKey, onClose }: Omit<QuotasDialogProps, "opened">) {
  const readAnew = useReadAnew();
  const set = useMutation(ApiKeyService.method.setApiKeyQuotas);
  const [failure, setFailure] = useState<unknown>();
  const form = useForm<QuotaValues>({
    initialValues: { quotas: quotaValuesOf(apiKey) },
    validate: { quotas: QUOTA_RULES },
  });

  const submit = form.onSubmit(async ({ quotas }) => {
    setFailure(undefined);
    try {
      await set.mutateAsync({ apiKeyId: apiKey?.id ?? "", quotas: quotasOf(quotas) });
    } catch (error) {
      const fields = fieldFailures(error);
      form.setErrors(fields);
      if (Object.keys(fields).length === 0) setFailure(error);
      return;
    }
    notifications.show({ color: "green", message: `The quotas of “${apiKey?.name}” are saved` });
    onClose();
    await readAnew(ApiKeyService);
  });

  return (
    <form onSubmit={submit} noValidate>
      <Stack>
        <Text size="sm">
          Requests beyond a quota are refused. Webhooks that exist already stay. Leave a field empty for no
          quota.
        </Text>
        <QuotaFields form={form} />
        {failure !== undefined && <Failure error={failure} title="The quotas were not saved" />}
        <FormActions submit="Save quotas" busy={form.submitting} onCancel={onClose} />
      </Stack>
    </form>
  );
}
