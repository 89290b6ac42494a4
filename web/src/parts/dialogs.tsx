import {
  Alert,
  Button,
  type ButtonProps,
  Group,
  Modal,
  Radio,
  Stack,
  type StackProps,
  Text,
} from "@mantine/core";
import { useDisclosure } from "@mantine/hooks";
import { IconRefresh } from "@tabler/icons-react";
import { type FormEvent, type ReactNode, useState } from "react";
import { Failure } from "./failure.tsx";
import { useFocusBack } from "./focus.ts";
import { type Saving, useSave } from "./save.ts";

/** Whether a dialog is open. */
export interface DialogProps {
  opened: boolean;
  onClose: () => void;
}

/** A button and the dialog that it opens. */
export interface DialogButtonProps extends ButtonProps {
  /** The text of the button. */
  children: ReactNode;
  dialog: (props: DialogProps) => ReactNode;
  onOpen?: () => void;
}

/** A button that opens a dialog, and has the focus again after it. */
export function DialogButton({ children, dialog, onOpen, ...button }: DialogButtonProps) {
  const [opened, { open, close }] = useDisclosure();
  useFocusBack(opened);
  function ask() {
    onOpen?.();
    open();
  }
  return (
    <>
      <Button variant="default" onClick={ask} {...button}>
        {children}
      </Button>
      {dialog({ opened, onClose: close })}
    </>
  );
}

/** A button and the dialog with a form that it opens. */
export interface FormButtonProps extends Omit<DialogButtonProps, "dialog"> {
  title: string;
  form: (onClose: () => void) => ReactNode;
}

/** A button that opens a dialog with a form. */
export function FormButton({ title, form, ...button }: FormButtonProps) {
  return (
    <DialogButton
      {...button}
      dialog={(dialog) => (
        <FormDialog {...dialog} title={title}>
          {form(dialog.onClose)}
        </FormDialog>
      )}
    />
  );
}

/** A choice in a dialog, which is the initial one each time that the dialog opens. */
export function useDialogState<T>(opened: boolean, initial: T): [T, (value: T) => void] {
  const [value, setValue] = useState(initial);
  const [wasOpened, setWasOpened] = useState(opened);
  if (opened !== wasOpened) {
    setWasOpened(opened);
    if (opened) setValue(initial);
  }
  return [value, setValue];
}

/** A question before something is done. */
export interface ConfirmDialogProps extends DialogProps {
  /** The question: "Delete this webhook?". */
  title: string;
  /** The effects, irreversible ones included, and fields. */
  children: ReactNode;
  /** The label of the button, as a verb: "Delete webhook". */
  confirm: string;
  /** Red, for what cannot be undone. */
  danger?: boolean;
  /** False while what the dialog asks for is not given. */
  ready?: boolean;
  /** Does it. The dialog closes when it resolves, and says what went wrong when it rejects. */
  onConfirm: () => Promise<unknown>;
}

/** Asks before something is done, stays open until it is, and says so when it fails. */
export function ConfirmDialog(props: ConfirmDialogProps) {
  const { opened, onClose, title, children, confirm, danger = false, ready = true, onConfirm } = props;
  const { busy, failure, save, reset } = useSave();

  function close() {
    if (busy) return;
    reset();
    onClose();
  }

  async function run() {
    if (await save(onConfirm)) onClose();
  }

  return (
    <Modal opened={opened} onClose={close} title={title}>
      <Stack>
        {children}
        <Failure error={failure} />
        <Group justify="flex-end">
          <Button variant="default" onClick={close} disabled={busy} data-autofocus={danger || undefined}>
            Cancel
          </Button>
          <Button
            color={danger ? "red" : undefined}
            loading={busy}
            disabled={!ready}
            onClick={() => void run()}
            data-autofocus={danger ? undefined : true}
          >
            {confirm}
          </Button>
        </Group>
      </Stack>
    </Modal>
  );
}

/** A question with a few answers. */
export interface RadioChoiceProps<Value extends string> {
  label: string;
  options: readonly { value: Value; label: string; description?: string }[];
  value: Value;
  onChange: (value: Value) => void;
}

/** Asks for one of a few answers, each with its effect. */
export function RadioChoice<Value extends string>(props: RadioChoiceProps<Value>) {
  const { label, options, value, onChange } = props;
  return (
    <Radio.Group label={label} value={value} onChange={(chosen) => onChange(chosen as Value)}>
      <Stack gap="sm" mt="xs">
        {options.map((option) => (
          <Radio key={option.value} {...option} />
        ))}
      </Stack>
    </Radio.Group>
  );
}

/** A dialog with a form. */
export interface FormDialogProps extends DialogProps {
  /** The title: "New webhook". */
  title: string;
  /** The form: made anew each time the dialog opens, so that nothing is left of what was typed before. */
  children: ReactNode;
}

/** Asks for what is to be made. Escape and its buttons close it; a click beside it does not, by which much would be lost. */
export function FormDialog(props: FormDialogProps) {
  // A field that gets the focus is not left below the title or the buttons, which stay in sight.
  return (
    <Modal
      {...props}
      size="lg"
      closeOnClickOutside={false}
      styles={{ content: { scrollPaddingBlock: 80 } }}
    />
  );
}

/** A form in a dialog. */
export interface SaveFormProps {
  saving: Pick<Saving, "busy" | "failure">;
  onSubmit: (event: FormEvent<HTMLFormElement>) => void;
  onCancel: () => void;
  /** The label of the button, as a verb: "Create key". */
  submit: string;
  /** The title of the error, if that of the error does not name the failed action: "The key was not created". */
  failed?: string;
  /** What somebody else has changed meanwhile, if so, and what puts the current values into the fields. */
  changed?: { what: string; onReload: () => void } | false | undefined;
  gap?: StackProps["gap"];
  children: ReactNode;
}

/** The fields of a form, the error of the last save, and the buttons; where the fields scroll, these stay in sight. */
export function SaveForm(props: SaveFormProps) {
  const { saving, onSubmit, onCancel, submit, failed, changed, gap, children } = props;
  const { busy, failure } = saving;
  return (
    <form onSubmit={onSubmit} noValidate>
      <Stack gap={gap}>
        {children}
        {changed ? (
          <ChangedMeanwhile {...changed} />
        ) : (
          failure !== undefined && <Failure error={failure} title={failed} />
        )}
        <Group
          justify="flex-end"
          pos="sticky"
          bottom={0}
          py="md"
          // Down to the dialog's edge.
          mb="calc(-1 * var(--mantine-spacing-md))"
          mt="calc(-1 * var(--mantine-spacing-xs))"
          bg="var(--mantine-color-body)"
          // What is below is seen to go on.
          style={{ zIndex: 1, borderBlockStart: "1px solid var(--line)" }}
        >
          <Button variant="default" onClick={onCancel} disabled={busy}>
            Cancel
          </Button>
          <Button type="submit" loading={busy}>
            {submit}
          </Button>
        </Group>
      </Stack>
    </form>
  );
}

/** Says that nothing was saved because somebody else changed the same thing, with a button for the current values. */
function ChangedMeanwhile({ what, onReload }: { what: string; onReload: () => void }) {
  return (
    <Alert color="orange" icon={<IconRefresh />} role="alert" title={`This ${what} was changed meanwhile`}>
      <Stack align="flex-start" gap="sm">
        <Text size="sm">Nothing was saved. Load the current values, then make your changes again.</Text>
        <Button variant="default" onClick={onReload}>
          Load the current values
        </Button>
      </Stack>
    </Alert>
  );
}

/**
 * The validation of a field for a number of which 0 means the same to the service as an empty field: refuses 0, and accepts an empty
 * field. The field itself corrects 0 only when it loses the focus, not on Enter.
 *
 * @param meaning of an empty field, in the error: `no quota`, `no limit`, `the default`
 */
export const fromOne = (meaning: string) => (value: number | string) =>
  value !== "" && Number(value) < 1 ? `From 1. Leave it empty for ${meaning}.` : null;
