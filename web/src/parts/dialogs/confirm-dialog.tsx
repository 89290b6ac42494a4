import { Button, Group, Modal, Stack } from "@mantine/core";
import { type ReactNode, useState } from "react";
import { Failure } from "../status/failure.tsx";

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
