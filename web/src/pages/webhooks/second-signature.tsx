import { Select, TextInput } from "@mantine/core";
import { useForm } from "@mantine/form";
import { SignatureForm, type Webhook } from "../../../../gen/webhook/v1/webhook_pb.ts";
import { SIGNATURE_HEADER, SVIX_HEADERS } from "../../../../src/contract/webhooks/second-signature.ts";
import { useMay } from "../../api/session.tsx";
import { FormButton, SaveForm } from "../../parts/dialogs.tsx";
import { Dimmed } from "../../parts/inline.tsx";
import { Facts, Section } from "../../parts/page.tsx";
import { notifyDone } from "../../parts/save.ts";
import { SharedNote } from "./endpoint.tsx";
import { useWebhookUpdate } from "./webhook-form.tsx";

/** The forms of a second signature, and the header of each that a webhook may replace. */
const FORMS = [
  { form: SignatureForm.UNSPECIFIED, label: "None", header: undefined },
  { form: SignatureForm.SVIX, label: `Svix: ${SVIX_HEADERS.join(", ")}`, header: undefined },
  { form: SignatureForm.STRIPE, label: "Stripe: t=…,v1=…", header: SIGNATURE_HEADER.stripe },
  { form: SignatureForm.HEX, label: "Hex of the body, as GitHub", header: SIGNATURE_HEADER.hex },
];

const kindOf = (form: SignatureForm | undefined) => FORMS.find((each) => each.form === form) ?? FORMS[0];

/** The header that carries a webhook's second signature, and its text before it; undefined if it has none, or Svix's headers. */
export const signatureHeader = ({ signatureForm, signatureHeader: own }: Webhook): string | undefined => {
  const usual = kindOf(signatureForm)?.header;
  return usual && (own ?? usual);
};

/** The signature of a webhook's requests beside that of Standard Webhooks. */
export function SecondSignatureSection({ webhook }: { webhook: Webhook }) {
  const mayWrite = useMay("Write_Administrative_Data");
  const { signatureForm, signaturePrefix } = webhook;
  const header = signatureHeader(webhook);
  if (!mayWrite && !signatureForm) return null;
  return (
    <Section
      title="Second signature"
      description="For endpoints that verify another product’s signature, beside that of Standard Webhooks. Made with the same signing secret."
      actions={
        mayWrite && (
          <FormButton title="Second signature" form={(close) => <Form webhook={webhook} onClose={close} />}>
            Change…
          </FormButton>
        )
      }
    >
      {signatureForm ? (
        <Facts
          facts={[
            ["Form", kindOf(signatureForm)?.label],
            header !== undefined && ["Header", header],
            signatureForm === SignatureForm.HEX && ["Prefix", signaturePrefix ?? "None"],
          ]}
        />
      ) : (
        <Dimmed>None: deliveries carry the standard signature only.</Dimmed>
      )}
    </Section>
  );
}

const valuesOf = ({ signatureForm, signatureHeader: header, signaturePrefix }: Webhook) => ({
  signatureForm: String(signatureForm ?? SignatureForm.UNSPECIFIED),
  signatureHeader: header ?? "",
  signaturePrefix: signaturePrefix ?? "",
});

function Form({ webhook, onClose }: { webhook: Webhook; onClose: () => void }) {
  const form = useForm({ initialValues: valuesOf(webhook) });
  const update = useWebhookUpdate(webhook, form, valuesOf);
  const chosen = Number(form.values.signatureForm) as SignatureForm;
  const usual = kindOf(chosen)?.header;

  const submit = form.onSubmit(async (values) => {
    const changes = {
      signatureForm: chosen,
      signatureHeader: usual ? values.signatureHeader.trim() : "",
      signaturePrefix: chosen === SignatureForm.HEX ? values.signaturePrefix : "",
    };
    if (!(await update.save(changes))) return;
    notifyDone("The second signature is saved");
    onClose();
  });

  return (
    <SaveForm {...update.form} onSubmit={submit} onCancel={onClose} submit="Save">
      <Select
        label="Form"
        data={FORMS.map(({ form: value, label }) => ({ value: String(value), label }))}
        allowDeselect={false}
        data-autofocus
        {...form.getInputProps("signatureForm")}
      />
      {usual && (
        <TextInput
          label="Header"
          description={`Leave it empty for ${usual}.`}
          placeholder={usual}
          maxLength={100}
          autoComplete="off"
          spellCheck={false}
          {...form.getInputProps("signatureHeader")}
        />
      )}
      {chosen === SignatureForm.HEX && (
        <TextInput
          label="Prefix"
          description="The text before the signature: sha256= as GitHub has it. Leave it empty for none."
          placeholder="sha256="
          maxLength={50}
          autoComplete="off"
          spellCheck={false}
          {...form.getInputProps("signaturePrefix")}
        />
      )}
      <SharedNote webhook={webhook} />
    </SaveForm>
  );
}
