import { Alert, Box, Code, Group, NumberInput, type NumberInputProps, TextInput } from "@mantine/core";
import { useForm } from "@mantine/form";
import { IconArrowRight, IconPencil } from "@tabler/icons-react";
import { ApiKeyService } from "../../../../gen/webhook/v1/api_key_pb.ts";
import type { Webhook } from "../../../../gen/webhook/v1/webhook_pb.ts";
import { PAGE_PATHS } from "../../../../src/contract/page-paths.ts";
import {
  boundsOf,
  NUMBER_NAMES,
  type NumberName,
  numberSetting,
} from "../../../../src/contract/webhooks/settings.ts";
import { useEventTypes } from "../../api/event-types.ts";
import { useAllPages } from "../../api/queries.ts";
import { useDeliveryTimeoutMs, useMay } from "../../api/session.tsx";
import { typeName } from "../../api/type-names.ts";
import { FormButton, fromOne, SaveForm } from "../../parts/dialogs.tsx";
import { Dimmed, listPage, PageLink } from "../../parts/inline.tsx";
import { type Fact, Facts, Section } from "../../parts/page.tsx";
import { notifyDone } from "../../parts/save.ts";
import { Breakable } from "../../parts/text/breakable.tsx";
import { CopyButton } from "../../parts/text/copy.tsx";
import { capitalized, paceInWords } from "../../parts/text/words.ts";
import { Time } from "../../parts/time.tsx";
import { CustomerLink } from "../customers/chosen.tsx";
import { SharedNote, useUndelivered } from "./endpoint.tsx";
import {
  MovedCredentials,
  movedChanges,
  movedErrors,
  movedField,
  NO_MOVED_VALUES,
  useMovedSettings,
} from "./request/moved-credentials.tsx";
import { UrlField, useWebhookUpdate } from "./webhook-form.tsx";

/** The registration of a webhook: event type, URL, key, app and times. */
export function Registration({ webhook }: { webhook: Webhook }) {
  const { data: types } = useEventTypes();
  const mayWrite = useMay("Write_Administrative_Data");
  const type = types?.find(({ number }) => number === webhook.webhookProcess);
  return (
    <Section
      title="Registration"
      actions={
        mayWrite && (
          <FormButton
            leftSection={<IconPencil size={16} />}
            title="Edit webhook"
            form={(close) => <EditForm webhook={webhook} onClose={close} />}
          >
            Edit
          </FormButton>
        )
      }
    >
      <Facts
        facts={[
          [
            "Event type",
            <>
              {typeName(webhook)}
              <Dimmed size="xs" mih="1lh">
                {type?.description}
              </Dimmed>
            </>,
          ],
          webhook.name !== undefined && ["Name", webhook.name],
          ["URL", <Copied key="url" value={webhook.url} of="the URL" />],
          ["Id", <Copied key="id" value={String(webhook.id)} of="the webhook’s id" />],
          ["Installed app", webhook.applicationName ?? webhook.application ?? "None"],
          webhook.customer !== undefined && [
            "Customer",
            <CustomerLink key="customer" id={webhook.customer} />,
          ],
          ["API key", <ApiKeyName key="key" webhook={webhook} />],
          ...NUMBER_NAMES.map((name) => numberFact(name, webhook)),
          webhook.takesPerSecond !== undefined && [
            "Endpoint’s limit",
            `Takes about ${paceInWords(webhook.takesPerSecond)}`,
          ],
          ["Created", <Time key="created" value={webhook.created} />],
          ["Changed", <Time key="modified" value={webhook.modified} />],
        ]}
      />
    </Section>
  );
}

function Copied({ value, of }: { value: string; of: string }) {
  return (
    <Group gap={4} wrap="nowrap" align="flex-start">
      <span>
        <Breakable text={value} />
      </span>
      {/* As high as the text beside it. */}
      <Box my={-4}>
        <CopyButton value={value} of={of} />
      </Box>
    </Group>
  );
}

/** The name of the key that owns the webhook, for who may see keys; its id for others. */
function ApiKeyName({ webhook: { apiKeyId: id, customer } }: { webhook: Webhook }) {
  const maySee = useMay("Manage_Api_Keys");
  const filter = customer === undefined ? {} : { customer };
  const { data } = useAllPages(ApiKeyService.method.listApiKeys, filter, { enabled: maySee });
  const key = data?.apiKeys.find((each) => each.id === id);
  if (!key) return <Code>{id}</Code>;
  return <PageLink to={listPage(PAGE_PATHS.keys, { search: key.prefix })}>{key.name}</PageLink>;
}

/** A setting that is a number, as people read it; false where it says nothing. */
function numberFact(name: NumberName, webhook: Webhook): Fact | false {
  const { field } = numberSetting(name);
  const value = webhook[name];
  if (value === undefined) return !field.isRare && [field.label, capitalized(field.none)];
  const words = field.inWords(value / field.factor, webhook);
  return words !== undefined && [field.label, capitalized(words)];
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

/** Changes the name, the URL and the numbers of a webhook's settings. */
export function EditForm({ webhook, onClose }: { webhook: Webhook; onClose: () => void }) {
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
    notifyDone(moves ? "Undelivered deliveries go to the new URL." : "", "Changes saved");
    onClose();
  });

  return (
    <SaveForm {...update.form} onSubmit={submit} onCancel={onClose} submit="Save changes">
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
    </SaveForm>
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
    <Alert color="ink" icon={<IconArrowRight />} title="The URL changes" role="status">
      {waiting} Retries keep their planned times. The signing secret, the id and the log stay.
    </Alert>
  );
}
