import { callUnaryMethod, useTransport } from "@connectrpc/connect-query";
import { Checkbox, Code, Input, MultiSelect, Select, Stack, TextInput } from "@mantine/core";
import { useForm } from "@mantine/form";
import { type ApiKey, ApiKeyService, type InstalledApp } from "../../../../gen/webhook/v1/api_key_pb.ts";
import type { WebhookProcess } from "../../../../gen/webhook/v1/event_pb.ts";
import { Permission } from "../../../../gen/webhook/v1/options_pb.ts";
import { permissionName } from "../../../../src/contract/permissions.ts";
import { useTypeChoices } from "../../api/event-types.ts";
import { useAllPages, useChange } from "../../api/queries.ts";
import { isLimited } from "../../api/session.tsx";
import { type DialogProps, FormDialog, SaveForm } from "../../parts/dialogs.tsx";
import { clearButton, MAX_CHOICES } from "../../parts/filters.tsx";
import { QuotaFields, QuotasForm, quotaRules, quotasOf, quotaValues } from "../../parts/quotas.tsx";
import { notifyDone, useSave } from "../../parts/save.ts";
import { useCustomerFilter } from "../customers/chosen.tsx";

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
    meaning: "Register and deprecate event types. Not for keys of installed apps and customers.",
  },
  {
    permission: Permission.MANAGE_CUSTOMERS,
    label: "Manage customers",
    meaning:
      "Name customers, set their quotas, pause and erase them. Not for keys of installed apps and customers.",
  },
];

/** The maximum length of a name, in characters. */
const MAX_CHARACTERS = 100;
const requireName = (name: string) =>
  name.trim() === "" ? "Enter a name, so that people know what the key is for" : null;

/** Asks for a new key. */
export interface CreateKeyProps extends DialogProps {
  apps: readonly InstalledApp[];
  /** Id of the installed app that is chosen at first; "" for none. */
  appId: string;
  /** The customer that is entered at first; "" for none. */
  customer: string;
  /** The key that is signed in with: one of an installed app or a customer makes keys of these, with at most its own rights. */
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

function CreateKeyForm({ onClose, apps, appId, customer, own, onCreated }: Omit<CreateKeyProps, "opened">) {
  const transport = useTransport();
  const limited = isLimited(own);
  const ownProcesses = limited ? (own?.allowedProcesses ?? []) : [];
  const types = useTypeChoices("number");
  const form = useForm({
    initialValues: {
      name: "",
      permissions: [] as string[],
      allowedProcesses: ownProcesses.map(String),
      installedApplicationId: (apps.some(({ id }) => id === appId) ? appId : null) as string | null,
      customer,
      quotas: quotaValues(QUOTAS, undefined),
    },
    validate: {
      name: requireName,
      permissions: (chosen) => (chosen.length === 0 ? "Choose at least one" : null),
      allowedProcesses: (chosen) =>
        ownProcesses.length > 0 && chosen.length === 0 ? "Choose at least one" : null,
      quotas: quotaRules(QUOTAS),
    },
  });

  const saving = useSave(form);

  const submit = form.onSubmit(({ quotas, installedApplicationId: app, customer, ...values }) =>
    saving.save(async () => {
      // Nothing keeps the secret but what shows it.
      const { apiKey, secret } = await callUnaryMethod(transport, ApiKeyService.method.createApiKey, {
        name: values.name.trim(),
        permissions: values.permissions.map((number) => Number(number) as Permission),
        allowedProcesses: values.allowedProcesses.map((number) => Number(number) as WebhookProcess),
        ...(app ? { installedApplicationId: app } : {}),
        ...(customer.trim() ? { customer: customer.trim() } : {}),
        // The keys that a limited key creates get its own quotas.
        ...(limited ? {} : { quotas: quotasOf(quotas) }),
      });
      void onCreated(apiKey, secret);
    }),
  );

  const permissions = PERMISSIONS.filter(
    ({ permission }) => !limited || own?.permissions.includes(permission),
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
          {permissions.map(({ permission, label, meaning }) => (
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
          ))}
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
      {!limited && (
        <TextInput
          {...form.getInputProps("customer")}
          label="Customer"
          description="The user id of a customer, whose webhooks receive its own events only. Empty for a key of your own."
          maxLength={128}
          autoComplete="off"
          spellCheck={false}
        />
      )}
      <Select
        {...form.getInputProps("installedApplicationId")}
        label="Installed app"
        description="Webhooks registered with this key belong to the app; their deliveries include X-Service-UserId."
        placeholder={apps.length === 0 ? "No installed apps yet" : "None"}
        disabled={apps.length === 0 || limited}
        data={apps.map(({ id, name }) => ({ value: id, label: name }))}
        searchable
        clearable
        clearButtonProps={clearButton("No installed app")}
        nothingFoundMessage="No such app"
      />
      {!limited && (
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

const QUOTAS = ["webhooks", "eventsPerSecond"] as const;

/** Changes the quotas of a key. @param apiKey the key; the one before while the dialog is closed */
export function QuotasDialog({ apiKey, ...dialog }: DialogProps & { apiKey: ApiKey | undefined }) {
  const filter = useCustomerFilter();
  const list = useAllPages(ApiKeyService.method.listApiKeys, filter, { enabled: false });
  const set = useChange(ApiKeyService.method.setApiKeyQuotas);
  const name = apiKey?.name ?? "";
  return (
    <FormDialog {...dialog} title={`Quotas of “${name}”`}>
      <QuotasForm
        noun="key"
        name={name}
        names={QUOTAS}
        quotas={apiKey?.quotas}
        read={async () => {
          const { data } = await list.refetch({ throwOnError: true });
          return data?.apiKeys.find(({ id }) => id === apiKey?.id)?.quotas;
        }}
        save={(quotas) => set({ apiKeyId: apiKey?.id ?? "", quotas })}
        onClose={dialog.onClose}
      />
    </FormDialog>
  );
}

/** Changes the name of a key. */
export function RenameDialog({ apiKey, ...dialog }: DialogProps & { apiKey: ApiKey | undefined }) {
  return (
    <FormDialog {...dialog} title={`Rename “${apiKey?.name}”`}>
      <RenameForm apiKey={apiKey} onClose={dialog.onClose} />
    </FormDialog>
  );
}

function RenameForm({ apiKey, onClose }: { apiKey: ApiKey | undefined; onClose: () => void }) {
  const rename = useChange(ApiKeyService.method.renameApiKey);
  const form = useForm({ initialValues: { name: apiKey?.name ?? "" }, validate: { name: requireName } });
  const saving = useSave(form);
  const submit = form.onSubmit(({ name }) =>
    saving.save(async () => {
      await rename({ apiKeyId: apiKey?.id ?? "", name: name.trim() });
      notifyDone(`The key is now “${name.trim()}”`);
      onClose();
    }),
  );
  return (
    <SaveForm
      saving={saving}
      onSubmit={submit}
      onCancel={onClose}
      submit="Rename"
      failed="The key was not renamed"
    >
      <TextInput
        {...form.getInputProps("name")}
        label="Name"
        description="Entries of the audit log keep the old name."
        maxLength={MAX_CHARACTERS}
        autoComplete="off"
        data-autofocus
      />
    </SaveForm>
  );
}
