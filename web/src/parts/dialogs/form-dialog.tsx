import { Button, Group, Modal } from "@mantine/core";
import type { ReactNode } from "react";

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
