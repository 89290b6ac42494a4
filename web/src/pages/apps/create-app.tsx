import { useMutation } from "@connectrpc/connect-query";
import { Stack, TextInput } from "@mantine/core";
import { useForm } from "@mantine/form";
import { notifications } from "@mantine/notifications";
import { useState } from "react";
import { ApiKeyService } from "../../../../gen/webhook/v1/api_key_pb.ts";
import { fieldFailures } from "../../api/failure.ts";
import { useReadAnew } from "../../api/use-read-anew.ts";
import { FormActions, FormDialog } from "../../parts/dialogs/form-dialog.tsx";
import { Failure } from "../../parts/status/failure.tsx";

/** The maximum length of a name, in characters. */
const MAX_CHARACTERS = 100;

/** The form of a new installed app. */
export function CreateApp({ opened, onClose }: { opened: boolean; onClose: () => void }) {
  return (
    <FormDialog opened={opened} onClose={onClose} title="New installed app">
      <CreateAppForm onClose={onClose} />
    </FormDialog>
  );
}

function CreateAppForm({ onClose }: { onClose: () => void }) {
  const readAnew = useReadAnew();
  const create = useMutation(ApiKeyService.method.createInstalledApp);
  const [failure, setFailure] = useState<unknown>();
  const form = useForm({
    mode: "uncontrolled",
    initialValues: { name: "" },
    validate: { name: (name) => (name.trim() === "" ? "Enter the app’s name" : null) },
  });

  async function submit({ name }: { name: string }) {
    setFailure(undefined);
    try {
      await create.mutateAsync({ name: name.trim() });
    } catch (error) {
      const fields = fieldFailures(error);
      form.setErrors(fields);
      if (Object.keys(fields).length === 0) setFailure(error);
      return;
    }
    await readAnew(ApiKeyService.method.listInstalledApps);
    notifications.show({ color: "green", message: `The app “${name.trim()}” is created` });
    onClose();
  }

  return (
    <form onSubmit={form.onSubmit(submit)} noValidate>
      <Stack>
        <TextInput
          key={form.key("name")}
          {...form.getInputProps("name")}
          label="Name"
          description="The name integrators know. It cannot be changed later."
          maxLength={MAX_CHARACTERS}
          autoComplete="off"
          withAsterisk
          data-autofocus
        />
        {failure !== undefined && <Failure error={failure} title="The app was not created" />}
        <FormActions submit="Create app" busy={form.submitting} onCancel={onClose} />
      </Stack>
    </form>
  );
}
