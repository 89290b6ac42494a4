import { useMutation } from "@connectrpc/connect-query";
import { Stack, Text } from "@mantine/core";
import { useForm } from "@mantine/form";
import { notifications } from "@mantine/notifications";
import { useState } from "react";
import { type ApiKey, ApiKeyService } from "../../../../../gen/webhook/v1/api_key_pb.ts";
import { fieldFailures } from "../../../api/failure.ts";
import { useAllPages } from "../../../api/use-all-pages.ts";
import { useReadAnew } from "../../../api/use-read-anew.ts";
import { ChangedMeanwhile } from "../../../parts/dialogs/changed-meanwhile.tsx";
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
  const list = useAllPages(ApiKeyService.method.listApiKeys, {}, { enabled: false });
  const set = useMutation(ApiKeyService.method.setApiKeyQuotas);
  const [failure, setFailure] = useState<unknown>();
  // The quotas that the fields were filled with.
  const [base, setBase] = useState(() => quotaValuesOf(apiKey));
  // The current quotas, if somebody has changed them since.
  const [changed, setChanged] = useState<QuotaValues["quotas"]>();
  const form = useForm<QuotaValues>({
    initialValues: { quotas: base },
    validate: { quotas: QUOTA_RULES },
  });

  const submit = form.onSubmit(async ({ quotas }) => {
    setFailure(undefined);
    try {
      // The service replaces the quotas, whatever they are by now.
      const { data } = await list.refetch({ throwOnError: true });
      const now = quotaValuesOf(data?.apiKeys.find(({ id }) => id === apiKey?.id));
      if (now.webhooks !== base.webhooks || now.eventsPerSecond !== base.eventsPerSecond) {
        setChanged(now);
        return;
      }
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

  function takeCurrent(quotas: QuotaValues["quotas"]) {
    setBase(quotas);
    form.setValues({ quotas });
    setChanged(undefined);
  }

  return (
    <form onSubmit={submit} noValidate>
      <Stack>
        <Text size="sm">
          Requests beyond a quota are refused. Webhooks that exist already stay. Leave a field empty for no
          quota.
        </Text>
        <QuotaFields form={form} />
        {changed && <ChangedMeanwhile what="key" onReload={() => takeCurrent(changed)} />}
        {failure !== undefined && <Failure error={failure} title="The quotas were not saved" />}
        <FormActions submit="Save quotas" busy={form.submitting} onCancel={onClose} />
      </Stack>
    </form>
  );
}
