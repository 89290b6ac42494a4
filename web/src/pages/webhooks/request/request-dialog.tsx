import type { MessageInitShape } from "@bufbuild/protobuf";
import { useMutation } from "@connectrpc/connect-query";
import {
  ActionIcon,
  Button,
  Group,
  PasswordInput,
  SegmentedControl,
  Stack,
  Text,
  TextInput,
} from "@mantine/core";
import { notifications } from "@mantine/notifications";
import { IconPlus, IconTrash } from "@tabler/icons-react";
import { type FormEvent, useRef, useState } from "react";
import { flushSync } from "react-dom";
import type {
  MaskedRequestSettings,
  RequestSettingsSchema,
} from "../../../../../gen/webhook/v1/request_settings_pb.ts";
import { type Webhook, WebhookService } from "../../../../../gen/webhook/v1/webhook_pb.ts";
import { MAX_HEADERS } from "../../../../../src/contract/delivery-headers.ts";
import { useChange } from "../../../api/queries.ts";
import { type DialogProps, FormDialog, SaveForm } from "../../../parts/dialogs.tsx";
import { Failure } from "../../../parts/failure.tsx";
import { useSave } from "../../../parts/save.ts";
import { SharedNote } from "../endpoint.tsx";
import { TestOutcome } from "../live-test.tsx";
import { useWebhookSave } from "../webhook-form.tsx";
import {
  authenticationMessage,
  type Kind,
  kindOf,
  OAuth2Fields,
  oauth2Values,
  SECRET_LABELS,
  TlsFields,
  tlsMessage,
  tlsValues,
} from "./fields.tsx";

/** The settings of a webhook as the page has read them. */
interface StoredSettings {
  settings: MaskedRequestSettings;
  /** The webhook's revision that had them. */
  revision: bigint;
}

interface RequestDialogProps extends DialogProps {
  webhook: Webhook;
  stored: StoredSettings;
}

/** A header of the form. */
interface Row {
  key: number;
  name: string;
  value: string;
  /** Whether a value is stored, which is kept if the field stays empty. */
  stored: boolean;
  /** Whether the user has added the row, so that its first field gets the focus. */
  isAdded?: boolean;
}

const KINDS = [
  { value: "none", label: "None" },
  { value: "basic", label: "Basic" },
  { value: "bearer", label: "Bearer token" },
  { value: "oauth2", label: "OAuth 2.0" },
];
const KEPT = "Stored; leave empty to keep it";

/** Changes the headers and the authentication of a webhook's requests, and tries them before. */
export function RequestDialog({ webhook, stored, ...dialog }: RequestDialogProps) {
  return (
    <FormDialog {...dialog} title="Headers and authentication">
      <CurrentForm webhook={webhook} stored={stored} onClose={dialog.onClose} />
    </FormDialog>
  );
}

/** The form, made anew when the user asks for the settings that somebody else has saved meanwhile. */
function CurrentForm({ webhook, stored, onClose }: Omit<RequestDialogProps, "opened">) {
  const [{ base, isReloaded }, setCurrent] = useState({ base: stored, isReloaded: false });
  return (
    <Form
      key={String(base.revision)}
      webhook={webhook}
      base={base}
      // The focused button is gone then.
      autoFocus={isReloaded}
      takeCurrent={() => setCurrent({ base: stored, isReloaded: true })}
      onClose={onClose}
    />
  );
}

interface FormProps {
  webhook: Webhook;
  /** The settings as they were when the fields were filled: the page reads them anew meanwhile. */
  base: StoredSettings;
  /** Whether the first field gets the focus. */
  autoFocus: boolean;
  takeCurrent: () => void;
  onClose: () => void;
}

function Form({ webhook, base: { settings, revision }, autoFocus, takeCurrent, onClose }: FormProps) {
  const set = useChange(WebhookService.method.setWebhookRequestSettings);
  const attempt = useMutation(WebhookService.method.tryWebhookRequest);
  const addButton = useRef<HTMLButtonElement>(null);
  const { save, ...saving } = useWebhookSave(useSave(), takeCurrent);
  const [rows, setRows] = useState<Row[]>(() => {
    const stored = settings.headerNames.map((name, key) => ({ key, name, value: "", stored: true }));
    // An empty one to fill in; left empty, it is not saved.
    return withEmptyRow(stored).slice(0, MAX_HEADERS);
  });
  const storedUser = settings.basicUsername;
  const storedClient = settings.oauth2;
  const storedKind = kindOf(settings);
  const [kind, setKind] = useState<Kind>(storedKind);
  const [username, setUsername] = useState(storedUser ?? "");
  const [secret, setSecret] = useState("");
  const [oauth2, setOAuth2] = useState(() => oauth2Values(storedClient));
  const [tls, setTls] = useState(() => tlsValues(settings));
  const isKept =
    storedKind === kind &&
    (kind !== "basic" || username === storedUser) &&
    (kind !== "oauth2" ||
      (oauth2.tokenUrl === storedClient?.tokenUrl && oauth2.clientId === storedClient.clientId));

  function change(key: number, to: Partial<Row>) {
    setRows((now) => now.map((row) => (row.key === key ? { ...row, ...to } : row)));
  }

  function remove(key: number) {
    // The button disappears with the focus. The one below may be disabled until the row is gone.
    flushSync(() => setRows((now) => now.filter((row) => row.key !== key)));
    addButton.current?.focus();
  }

  function asked(): MessageInitShape<typeof RequestSettingsSchema> {
    const headers = rows
      .filter(({ name, value }) => name !== "" || value !== "")
      .map(({ name, value }) => ({ name: name.trim(), ...(value === "" ? {} : { value }) }));
    return {
      headers,
      tls: tlsMessage(tls),
      ...authenticationMessage(kind, { username, secret, oauth2 }, isKept),
    };
  }

  // An outcome is shown only while the fields have the settings that were tried.
  const isTried = JSON.stringify(attempt.variables?.settings) === JSON.stringify(asked());

  async function submit(event: FormEvent) {
    event.preventDefault();
    const isSaved = await save(async () => {
      const { warnings } = await set({ webhookId: webhook.id, settings: asked(), revision });
      if (warnings.length > 0)
        notifications.show({
          color: "yellow",
          title: "Saved",
          message: warnings.join(" "),
          autoClose: 10_000,
        });
    });
    if (isSaved) onClose();
  }

  return (
    <SaveForm
      {...saving}
      onSubmit={(event) => void submit(event)}
      onCancel={onClose}
      submit="Save"
      failed="Nothing was saved"
      gap="md"
    >
      <Stack gap="xs">
        <Text size="sm" fw={500} id="own-headers">
          Headers
        </Text>
        {rows.map(({ key, name, value, stored, isAdded }, index) => (
          <Group key={key} gap="xs" wrap="nowrap" align="flex-start">
            <TextInput
              aria-label={`Name of header ${index + 1}`}
              autoFocus={isAdded || (autoFocus && index === 0)}
              placeholder="X-Tenant"
              autoComplete="off"
              value={name}
              onChange={(event) => change(key, { name: event.currentTarget.value, stored: false })}
              flex={1}
            />
            <PasswordInput
              aria-label={`Value of header ${index + 1}`}
              placeholder={stored ? KEPT : "Value"}
              value={value}
              onChange={(event) => change(key, { value: event.currentTarget.value })}
              autoComplete="off"
              flex={1.4}
            />
            <ActionIcon
              variant="subtle"
              color="red"
              size="lg"
              aria-label={`Remove header ${index + 1}`}
              onClick={() => remove(key)}
            >
              <IconTrash size={18} />
            </ActionIcon>
          </Group>
        ))}
        <Group>
          <Button
            ref={addButton}
            variant="default"
            leftSection={<IconPlus size={14} />}
            disabled={rows.length >= MAX_HEADERS}
            onClick={() => setRows((now) => withEmptyRow(now, true))}
          >
            Add a header
          </Button>
        </Group>
      </Stack>
      <Stack gap="xs">
        <Text size="sm" fw={500}>
          Authentication
        </Text>
        <SegmentedControl
          aria-label="Authentication"
          data={KINDS}
          value={kind}
          onChange={(next) => {
            setKind(next as Kind);
            setSecret("");
          }}
        />
        {kind === "basic" && (
          <TextInput
            label="User name"
            value={username}
            onChange={(event) => setUsername(event.currentTarget.value)}
            autoComplete="off"
          />
        )}
        {kind === "oauth2" && <OAuth2Fields values={oauth2} onChange={setOAuth2} />}
        {kind !== "none" && (
          <PasswordInput
            label={SECRET_LABELS[kind]}
            placeholder={isKept ? KEPT : ""}
            value={secret}
            onChange={(event) => setSecret(event.currentTarget.value)}
            autoComplete="new-password"
          />
        )}
      </Stack>
      <TlsFields values={tls} settings={settings} onChange={setTls} />
      <Group>
        <Button
          variant="default"
          loading={attempt.isPending}
          onClick={() => attempt.mutate({ webhookId: webhook.id, settings: asked() })}
        >
          Send a test request
        </Button>
      </Group>
      <div role="status">{isTried && attempt.data && <TestOutcome outcome={attempt.data} />}</div>
      <SharedNote webhook={webhook} />
      {isTried && attempt.isError && <Failure error={attempt.error} title="Nothing was sent" />}
    </SaveForm>
  );
}

function withEmptyRow(rows: readonly Row[], isAdded = false): Row[] {
  const key = Math.max(-1, ...rows.map((row) => row.key)) + 1;
  return [...rows, { key, name: "", value: "", stored: false, isAdded }];
}
