import { useMutation } from "@connectrpc/connect-query";
import { Checkbox, Code, Input, MultiSelect, Select, Stack, TextInput } from "@mantine/core";
import { useForm } from "@mantine/form";
import { useState } from "react";
import {
  type ApiKey,
  ApiKeyService,
  type CreateApiKeyResponse,
  type InstalledApp,
} from "../../../../../gen/webhook/v1/api_key_pb.ts";
import type { WebhookProcess } from "../../../../../gen/webhook/v1/event_pb.ts";
import type { Permission } from "../../../../../gen/webhook/v1/options_pb.ts";
import { catalogue } from "../../../../../src/contract/catalogue.ts";
import { permissionName } from "../../../../../src/contract/permissions.ts";
import { fieldFailures } from "../../../api/failure.ts";
import { FormActions, FormDialog } from "../../../parts/dialogs/form-dialog.tsx";
import { clearButton } from "../../../parts/lists/select-values.ts";
import { Failure } from "../../../parts/status/failure.tsx";
import { PERMISSIONS } from "./permissions.ts";
import { QUOTA_RULES, QuotaFields, quotasOf, quotaValuesOf } from "./quota-fields.tsx";

/** The maximum length of a name, in characters. */
const MAX_CHARACTERS = 100;

/** Asks for a new key. */
export interface CreateKeyProps {
  opened: boolean;
  onClose: () => void;
  apps: readonly InstalledApp[];
  /** Id of the installed app that is chosen at first; "" for none. */
  appId: string;
  /** The key that is signed in with: one of an installed app makes keys of its app, with at most its own rights. */
  own: ApiKey | undefined;
  /** Receives the key and its secret, which the service returns only once. */
  onCreated: (key: ApiKey | undefined, secret: string) => void;
}

/** The form of a new key. Closing it discards the values. */
export function CreateKey({ opened, onClose, ...form }: CreateKeyProps) {
  return (
    <FormDialog opened={opened} onClose={onClose} title="New API key">
      <CreateKeyForm {...form} onClose={onClose} />
    </FormDialog>
  );
}

function CreateKeyForm({ onClose, apps, appId, own, onCreated }: Omit<CreateKeyProps, "opened">) {
  // Nothing keeps the secret but what shows it.
  const create = useMutation(ApiKeyService.method.createApiKey, { gcTime: 0 });
  const [failure, setFailure] = useState<unknown>();
  const isOfApp = own?.installedApplicationId !== undefined;
  const ownProcesses = isOfApp ? own.allowedProcesses : [];
  const form = useForm({
    mode: "uncontrolled",
    initialValues: {
      name: "",
      permissions: [] as string[],
      allowedProcesses: ownProcesses.map(String),
      installedApplicationId: (apps.some(({ id }) => id === appId) ? appId : null) as string | null,
      quotas: quotaValuesOf(undefined),
    },
    validate: {
      name: (name) => (name.trim() === "" ? "Enter a name, so that people know what the key is for" : null),
      permissions: (chosen) => (chosen.length === 0 ? "Choose at least one" : null),
      allowedProcesses: (chosen) =>
        ownProcesses.length > 0 && chosen.length === 0 ? "Choose at least one" : null,
      quotas: QUOTA_RULES,
    },
  });

  async function submit(values: ReturnType<typeof form.getValues>) {
    setFailure(undefined);
    let made: CreateApiKeyResponse;
    try {
      made = await create.mutateAsync({
        name: values.name.trim(),
        permissions: values.permissions.map((number) => Number(number) as Permission),
        allowedProcesses: values.allowedProcesses.map((number) => Number(number) as WebhookProcess),
        ...(values.installedApplicationId ? { installedApplicationId: values.installedApplicationId } : {}),
        // The keys that a key of an app creates get its own quotas.
        ...(isOfApp ? {} : { quotas: quotasOf(values.quotas) }),
      });
    } catch (error) {
      const fields = fieldFailures(error);
      form.setErrors(fields);
      if (Object.keys(fields).length === 0) setFailure(error);
      return;
    }
    onCreated(made.apiKey, made.secret);
  }

  return (
    <form onSubmit={form.onSubmit(submit)} noValidate>
      <Stack gap="lg">
        <TextInput
          key={form.key("name")}
          {...form.getInputProps("name")}
          label="Name"
          description="Who or what uses the key, such as “Warehouse, production”"
          maxLength={MAX_CHARACTERS}
          autoComplete="off"
          withAsterisk
          data-autofocus
        />
        <Checkbox.Group
          key={form.key("permissions")}
          {...form.getInputProps("permissions")}
          label="Permissions"
          description="What the key allows. Permissions cannot be changed later."
          withAsterisk
        >
          <Stack gap="sm" mt="xs" mb={4}>
            {PERMISSIONS.filter(({ permission }) => !isOfApp || own.permissions.includes(permission)).map(
              ({ permission, label, meaning }) => (
                <Checkbox
                  key={permission}
                  value={String(permission)}
                  label={
                    <>
                      {label} <Code>{permissionName(permission)}</Code>
                    </>
                  }
                  description={meaning}
                />
              ),
            )}
          </Stack>
        </Checkbox.Group>
        <MultiSelect
          key={form.key("allowedProcesses")}
          {...form.getInputProps("allowedProcesses")}
          label="Event types"
          description={
            ownProcesses.length > 0
              ? "Event types this key may subscribe to: at most those of your key."
              : "Event types this key may subscribe to. Empty means all, including future ones."
          }
          placeholder={ownProcesses.length > 0 ? "" : "All"}
          data={catalogue
            .filter(
              ({ number }) => ownProcesses.length === 0 || ownProcesses.includes(number as WebhookProcess),
            )
            .map(({ number, name }) => ({ value: String(number), label: name }))}
          searchable
          clearable
          clearButtonProps={clearButton("All event types")}
          hidePickedOptions
          nothingFoundMessage="No such event type"
        />
        <Select
          key={form.key("installedApplicationId")}
          {...form.getInputProps("installedApplicationId")}
          label="Installed app"
          description="Webhooks registered with this key belong to the app; their deliveries include X-Service-UserId."
          placeholder={apps.length === 0 ? "No installed apps yet" : "None"}
          disabled={apps.length === 0 || isOfApp}
          data={apps.map(({ id, name }) => ({ value: id, label: name }))}
          searchable
          clearable
          clearButtonProps={clearButton("No installed app")}
          nothingFoundMessage="No such app"
        />
        {!isOfApp && (
          <Input.Wrapper
            label="Quotas"
            description="Requests beyond a quota are refused. Empty means no quota."
          >
            <QuotaFields form={form} />
          </Input.Wrapper>
        )}
        {failure !== undefined && <Failure error={failure} title="The key was not created" />}
        <FormActions submit="Create key" busy={form.submitting} onCancel={onClose} />
      </Stack>
    </form>
  );
}
