import { Alert, Button, Group, Modal, Stack, Text } from "@mantine/core";
import { IconRefresh } from "@tabler/icons-react";
import { type ReactNode, useState } from "react";
import { Failure } from "./failure.tsx";

/** A question before something is done. */
export interface ConfirmDialogProps {
  opened: boolean;
  onClose: () => void;
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
  const [busy, setBusy] = useState(false);
  const [failure, setFailure] = useState<unknown>();

  function close() {
    if (busy) return;
    setFailure(undefined);
    onClose();
  }

  async function run() {
    setBusy(true);
    setFailure(undefined);
    try {
      await onConfirm();
      onClose();
    } catch (error) {
      setFailure(error);
    } finally {
      setBusy(false);
    }
  }

  return (
    <Modal opened={opened} onClose={close} title={title}>
      <Stack>
        {children}
        {failure !== undefined && <Failure error={failure} />}
        <Group justify="flex-end">
          <Button variant="default" onClick={close} disabled={busy} data-autofocus={danger || undefined}>
            Cancel
          </Button>
          <Button
            color={danger ? "red" : undefined}
            loading={busy}
            disabled={!ready}
            onClick={run}
            data-autofocus={danger ? undefined : true}
          >
            {confirm}
          </Button>
        </Group>
      </Stack>
    </Modal>
  );
}

/** A dialog with a form. */
export interface FormDialogProps {
  opened: boolean;
  onClose: () => void;
  /** The title: "New webhook". */
  title: string;
  /** The form: made anew each time the dialog opens, so that nothing is left of what was typed before. */
  children: ReactNode;
}

/** Asks for what is to be made. Escape and its buttons close it; a click beside it does not, by which much would be lost. */
export function FormDialog({ opened, onClose, title, children }: FormDialogProps) {
  return (
    <Modal
      opened={opened}
      onClose={onClose}
      title={title}
      size="lg"
      closeOnClickOutside={false}
      // A field that gets the focus is not left below the title or the buttons, which stay in sight.
      styles={{ content: { scrollPaddingBlock: 80 } }}
    >
      {children}
    </Modal>
  );
}

/** The buttons of a form. */
export interface FormActionsProps {
  /** The label of the button, as a verb: "Create key". */
  submit: string;
  /** Whether it is being done. */
  busy: boolean;
  onCancel: () => void;
}

/** The buttons below a form's fields; where those scroll, they stay in sight. */
export function FormActions({ submit, busy, onCancel }: FormActionsProps) {
  return (
    <Group
      justify="flex-end"
      pos="sticky"
      bottom={0}
      py="md"
      // Down to the dialog's edge.
      mb="calc(-1 * var(--mantine-spacing-md))"
      mt="calc(-1 * var(--mantine-spacing-xs))"
      bg="var(--mantine-color-body)"
      style={{ zIndex: 1 }}
    >
      <Button variant="default" onClick={onCancel} disabled={busy}>
        Cancel
      </Button>
      <Button type="submit" loading={busy}>
        {submit}
      </Button>
    </Group>
  );
}

export interface ChangedMeanwhileProps {
  /** The noun of what was changed: "webhook". */
  what: string;
  /** Puts the current values into the fields. */
  onReload: () => void;
}

/** Says that nothing was saved because somebody else changed the same thing, with a button for the current values. */
export function ChangedMeanwhile({ what, onReload }: ChangedMeanwhileProps) {
  return (
    <Alert
      color="orange"
      variant="light"
      icon={<IconRefresh />}
      role="alert"
      title={`This ${what} was changed meanwhile`}
    >
      <Stack align="flex-start" gap="sm">
        <Text size="sm">Nothing was saved. Load the current values, then make your changes again.</Text>
        <Button size="xs" variant="default" onClick={onReload}>
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
