import { callUnaryMethod, useTransport } from "@connectrpc/connect-query";
import {
  Checkbox,
  Code,
  Input,
  MultiSelect,
  NumberInput,
  Select,
  SimpleGrid,
  Stack,
  Text,
  TextInput,
} from "@mantine/core";
import { type UseFormReturnType, useForm } from "@mantine/form";
import { useState } from "react";
import { type ApiKey, ApiKeyService, type InstalledApp } from "../../../../gen/webhook/v1/api_key_pb.ts";
import type { WebhookProcess } from "../../../../gen/webhook/v1/event_pb.ts";
import { Permission } from "../../../../gen/webhook/v1/options_pb.ts";
import { permissionName } from "../../../../src/contract/permissions.ts";
import { useTypeChoices } from "../../api/event-types.ts";
import { useAllPages, useChange } from "../../api/queries.ts";
import { type DialogProps, FormDialog, fromOne, SaveForm } from "../../parts/dialogs.tsx";
import { clearButton, MAX_CHOICES } from "../../parts/filters.tsx";
import { notifyDone, useSave } from "../../parts/save.ts";

/** Every permission, in the order in which people need them. */
export const PERMISSIONS: readonly { permission: Permission; label: string; meaning: string }[] = [
  {
    permission: Permission.READ_ADMINISTRATIVE_DATA,
    label: "Read",
    meaning: "See webhooks, deliveries and their attempts, with the payloads, and the statistics.",
  },
  {
    permission: Permission.WRITE_ADMINISTRATIVE_DATA,
    label: "Write",
    meaning:
      "Register, pause and delete webhooks, read and rotate their signing secrets, send deliveries again.",
  },
  {
    permission: Permission.PUBLISH_EVENTS,
    label: "Publish",
    meaning: "Publish the events that are delivered. For internal callers.",
  },
  {
    permission: Permission.MANAGE_API_KEYS,
    label: "Manage keys",
    meaning:
      "Create, rotate, revoke and remove keys and installed apps. The highest permission: a key without an app that has it can make a key that may do everything.",
  },
  {
    permission: Permission.MANAGE_EVENT_TYPES,
    label: "Manage event types",
    meaning: "Register and deprecate event types. Not for keys of installed apps.",
  },
];

/** The maximum length of a name, in characters. */
const MAX_CHARACTERS = 100;

/** Asks for a new key. */
export interface CreateKeyProps extends DialogProps {
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
  const transport = useTransport();
  const isOfApp = own?.installedApplicationId !== undefined;
  const ownProcesses = isOfApp ? own.allowedProcesses : [];
  const types = useTypeChoices("number");
  const form = useForm({
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

  const saving = useSave(form);

  const submit = form.onSubmit(({ quotas, installedApplicationId: app, ...values }) =>
    saving.save(async () => {
      // Nothing keeps the secret but what shows it.
      const { apiKey, secret } = await callUnaryMethod(transport, ApiKeyService.method.createApiKey, {
        name: values.name.trim(),
        permissions: values.permissions.map((number) => Number(number) as Permission),
        allowedProcesses: values.allowedProcesses.map((number) => Number(number) as WebhookProcess),
        ...(app ? { installedApplicationId: app } : {}),
        // The keys that a key of an app creates get its own quotas.
        ...(isOfApp ? {} : { quotas: quotasOf(quotas) }),
      });
      void onCreated(apiKey, secret);
    }),
  );

  return (
    <SaveForm
      saving={saving}
      onSubmit={submit}
      onCancel={onClose}
      submit="Create key"
      failed="The key was not created"
      gap="lg"
    >
      <TextInput
        {...form.getInputProps("name")}
        label="Name"
        description="Who or what uses the key, such as “Warehouse, production”"
        maxLength={MAX_CHARACTERS}
        autoComplete="off"
        withAsterisk
        data-autofocus
      />
      <Checkbox.Group
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
        {...form.getInputProps("allowedProcesses")}
        label="Event types"
        description={
          ownProcesses.length > 0
            ? "Event types this key may subscribe to: at most those of your key."
            : "Event types this key may subscribe to. Empty means all, including future ones."
        }
        placeholder={ownProcesses.length > 0 ? "" : "All"}
        data={types.filter(
          ({ value }) => ownProcesses.length === 0 || ownProcesses.includes(Number(value) as WebhookProcess),
        )}
        searchable
        limit={MAX_CHOICES}
        clearable
        clearButtonProps={clearButton("All event types")}
        hidePickedOptions
        nothingFoundMessage="No such event type"
      />
      <Select
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
    </SaveForm>
  );
}

const QUOTAS = [
  {
    name: "webhooks",
    label: "Webhooks",
    description: "The most that may belong to the key.",
    max: 1_000_000,
  },
  {
    name: "eventsPerSecond",
    label: "Events per second",
    description: "The most that may be published with the key.",
    max: 100_000,
  },
] as const;

type QuotaName = (typeof QUOTAS)[number]["name"];

/** The part of a form's values with the quotas of a key; "" for none. */
interface QuotaValues {
  quotas: Record<QuotaName, number | string>;
}

/** The validation of the quotas in a form. */
const QUOTA_RULES = { webhooks: fromOne("no quota"), eventsPerSecond: fromOne("no quota") };

/** The form's values for a key; empty for a new one. */
function quotaValuesOf(key: ApiKey | undefined): QuotaValues["quotas"] {
  return { webhooks: key?.quotas?.webhooks || "", eventsPerSecond: key?.quotas?.eventsPerSecond || "" };
}

/** The request's quotas for a form's values. */
function quotasOf({ webhooks, eventsPerSecond }: QuotaValues["quotas"]) {
  return { webhooks: Number(webhooks || 0), eventsPerSecond: Number(eventsPerSecond || 0) };
}

/** Asks for the quotas of a key. */
function QuotaFields({ form }: { form: Pick<UseFormReturnType<QuotaValues>, "getInputProps"> }) {
  return (
    <SimpleGrid cols={{ base: 1, xs: 2 }}>
      {QUOTAS.map(({ name, ...field }) => (
        <NumberInput
          key={name}
          {...form.getInputProps(`quotas.${name}`)}
          {...field}
          placeholder="No quota"
          min={1}
          allowDecimal={false}
          allowNegative={false}
          thousandSeparator=","
        />
      ))}
    </SimpleGrid>
  );
}

/** Changes the quotas of a key. @param apiKey the key; the one before while the dialog is closed */
export function QuotasDialog({ apiKey, ...dialog }: DialogProps & { apiKey: ApiKey | undefined }) {
  return (
    <FormDialog {...dialog} title={`Quotas of “${apiKey?.name}”`}>
      <QuotasForm apiKey={apiKey} onClose={dialog.onClose} />
    </FormDialog>
  );
}

function QuotasForm({ apiKey, onClose }: { apiKey: ApiKey | undefined; onClose: () => void }) {
  const list = useAllPages(ApiKeyService.method.listApiKeys, {}, { enabled: false });
  const set = useChange(ApiKeyService.method.setApiKeyQuotas);
  // The quotas that the fields were filled with.
  const [base, setBase] = useState(() => quotaValuesOf(apiKey));
  // The current quotas, if somebody has changed them since.
  const [changed, setChanged] = useState<QuotaValues["quotas"]>();
  const form = useForm<QuotaValues>({
    initialValues: { quotas: base },
    validate: { quotas: QUOTA_RULES },
  });
  const saving = useSave(form);

  const submit = form.onSubmit(({ quotas }) =>
    saving.save(async () => {
      // The service replaces the quotas, whatever they are by now.
      const { data } = await list.refetch({ throwOnError: true });
      const now = quotaValuesOf(data?.apiKeys.find(({ id }) => id === apiKey?.id));
      if (now.webhooks !== base.webhooks || now.eventsPerSecond !== base.eventsPerSecond) {
        setChanged(now);
        return;
      }
      await set({ apiKeyId: apiKey?.id ?? "", quotas: quotasOf(quotas) });
      notifyDone(`The quotas of “${apiKey?.name}” are saved`);
      onClose();
    }),
  );

  function takeCurrent(quotas: QuotaValues["quotas"]) {
    setBase(quotas);
    form.setValues({ quotas });
    setChanged(undefined);
  }

  return (
    <SaveForm
      saving={saving}
      onSubmit={submit}
      onCancel={onClose}
      submit="Save quotas"
      failed="The quotas were not saved"
      changed={changed && { what: "key", onReload: () => takeCurrent(changed) }}
    >
      <Text size="sm">
        Requests beyond a quota are refused. Webhooks that exist already stay. Leave a field empty for no
        quota.
      </Text>
      <QuotaFields form={form} />
    </SaveForm>
  );
}
