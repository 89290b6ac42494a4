import { Modal } from "@mantine/core";
import type { ReactNode } from "react";

/** A form of its own. */
export interface FormDialogProps {
  opened: boolean;
  onClose: () => void;
  /** What it makes: "New webhook". */
  title: string;
  /** The form: made anew each time the dialog opens, so that nothing is left of what was typed before. */
  children: ReactNode;
}

/** Asks for what is to be made. Escape and its buttons close it; a click beside it does not, by which much would be lost. */
export function FormDialog({ opened, onClose, title, children }: FormDialogProps) {
  return (
    <Modal opened={opened} onClose={onClose} title={title} size="lg" closeOnClickOutside={false}>
      {children}
    </Modal>
  );
}
