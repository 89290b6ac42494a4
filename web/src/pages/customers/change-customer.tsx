import { Button, Text, Textarea, TextInput } from "@mantine/core";
import { useForm } from "@mantine/form";
import { IconPencil, IconPlayerPause, IconPlayerPlay, IconTrash } from "@tabler/icons-react";
import { type Customer, CustomerService } from "../../../../gen/webhook/v1/customer_pb.ts";
import { DeliveryService } from "../../../../gen/webhook/v1/delivery_pb.ts";
import { WebhookService } from "../../../../gen/webhook/v1/webhook_pb.ts";
import { useChange } from "../../api/queries.ts";
import {
  ConfirmDialog,
  DialogButton,
  type DialogProps,
  FormButton,
  SaveForm,
  useDialogState,
} from "../../parts/dialogs.tsx";
import { notifyDone, useAct, useSave } from "../../parts/save.ts";

/** The maximum length of a name, in characters. */
const MAX_CHARACTERS = 100;

/** What the operator can do with a customer. */
export function CustomerActions({ customer }: { customer: Customer }) {
  const { userId, paused, erasure } = customer;
  const { pauseCustomer, resumeCustomer } = CustomerService.method;
  const pause = useChange(pauseCustomer, CustomerService, WebhookService, DeliveryService);
  const resume = useChange(resumeCustomer, CustomerService, WebhookService, DeliveryService);
  const act = useAct(`${userId} was not ${paused ? "resumed" : "paused"}`, () =>
    (paused ? resume : pause)({ customer: userId }),
  );
  return (
    <>
      <FormButton
        leftSection={<IconPencil size={16} />}
        title="Edit customer"
        form={(close) => <EditForm customer={customer} onClose={close} />}
      >
        Edit
      </FormButton>
      <Button
        variant="default"
        leftSection={paused ? <IconPlayerPlay size={16} /> : <IconPlayerPause size={16} />}
        {...act}
      >
        {paused ? "Resume" : "Pause"}
      </Button>
      <DialogButton
        variant="light"
        color="red"
        leftSection={<IconTrash size={16} />}
        disabled={erasure?.started !== undefined && erasure.finished === undefined}
        dialog={(dialog) => <EraseDialog {...dialog} customer={customer} />}
      >
        Erase
      </DialogButton>
    </>
  );
}

/** Changes the name and the notes about a customer. */
function EditForm({ customer, onClose }: { customer: Customer; onClose: () => void }) {
  const update = useChange(CustomerService.method.updateCustomer);
  const initialValues = { displayName: customer.displayName, metadata: linesOf(customer.metadata) };
  const form = useForm({
    initialValues,
    validate: {
      metadata: (lines) =>
        entriesOf(lines) ? null : "Write each entry in its own line, with a different name: “plan: gold”.",
    },
  });
  const saving = useSave(form, (field) =>
    field.startsWith("metadata") ? "metadata" : field === "display_name" ? "displayName" : field,
  );

  const submit = form.onSubmit(({ displayName, metadata }) =>
    saving.save(async () => {
      await update({
        customer: customer.userId,
        displayName: displayName.trim(),
        // What was not touched may have been changed by somebody else meanwhile.
        ...(metadata === initialValues.metadata ? {} : { metadata: { entries: entriesOf(metadata) ?? {} } }),
      });
      notifyDone("", "Changes saved");
      onClose();
    }),
  );

  return (
    <SaveForm saving={saving} onSubmit={submit} onCancel={onClose} submit="Save changes">
      <TextInput
        {...form.getInputProps("displayName")}
        label="Name"
        description="Shown in place of the user id. Leave it empty for none."
        maxLength={MAX_CHARACTERS}
        autoComplete="off"
        data-autofocus
      />
      <Textarea
        {...form.getInputProps("metadata")}
        label="Metadata"
        description="Your notes, one per line, as name and value. Keys of the customer do not see them."
        placeholder={"plan: gold\nregion: eu"}
        autosize
        minRows={3}
        maxRows={12}
        spellCheck={false}
      />
    </SaveForm>
  );
}

const linesOf = (entries: Record<string, string>) =>
  Object.entries(entries)
    .map(([name, value]) => `${name}: ${value}`)
    .join("\n");

/** The entries of lines such as `plan: gold`; undefined if one has no name, or the name of another. */
function entriesOf(lines: string): Record<string, string> | undefined {
  const entries: Record<string, string> = {};
  for (const line of lines.split("\n").filter((each) => each.trim() !== "")) {
    const [name = "", ...value] = line.split(":");
    if (name.trim() === "" || value.length === 0 || Object.hasOwn(entries, name.trim())) return undefined;
    entries[name.trim()] = value.join(":").trim();
  }
  return entries;
}

function EraseDialog({ customer: { userId }, ...dialog }: DialogProps & { customer: Customer }) {
  const erase = useChange(
    CustomerService.method.eraseCustomer,
    CustomerService,
    WebhookService,
    DeliveryService,
  );
  const [typed, setTyped] = useDialogState(dialog.opened, "");
  return (
    <ConfirmDialog
      {...dialog}
      title="Erase this customer?"
      confirm="Erase customer"
      danger
      ready={typed.trim() === userId}
      onConfirm={async () => {
        await erase({ customer: userId });
        notifyDone("This page shows the progress.", "The erasure has started");
      }}
    >
      <Text size="sm">
        Its webhooks are deleted, its API keys revoked, its open deliveries cancelled, and the payloads of its
        events erased, also those of deliveries to your own webhooks. Ids, states and counts stay in the log.
        This cannot be undone.
      </Text>
      <TextInput
        label={`Type ${userId} to confirm`}
        value={typed}
        onChange={(event) => setTyped(event.currentTarget.value)}
        autoComplete="off"
        spellCheck={false}
      />
    </ConfirmDialog>
  );
}
