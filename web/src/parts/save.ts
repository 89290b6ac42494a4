import { notifications } from "@mantine/notifications";
import { useState } from "react";
import { fieldFailures } from "../api/failure.ts";
import { notifyFailure } from "./failure.tsx";

/** The state of what a dialog or a form saves. */
export interface Saving {
  busy: boolean;
  /** The error of the last save that belongs to no field; undefined without one. */
  failure: unknown;
  /** Runs a save; whether that worked. */
  save: (run: () => Promise<unknown>) => Promise<boolean>;
  /** Removes the error. */
  reset: () => void;
}

/**
 * Saves, and keeps the error of a save that failed.
 *
 * @param form the form whose fields show the errors of fields; without one, all errors are kept
 * @param fieldOf the form's name of a field of the request. Defaults to the same name
 */
export function useSave(
  form?: { setErrors: (errors: Record<string, string>) => void },
  fieldOf = (field: string) => field,
): Saving {
  const [busy, setBusy] = useState(false);
  const [failure, setFailure] = useState<unknown>();
  async function save(run: () => Promise<unknown>) {
    setBusy(true);
    setFailure(undefined);
    try {
      await run();
      return true;
    } catch (error) {
      const fields = Object.entries(form ? fieldFailures(error) : {});
      form?.setErrors(Object.fromEntries(fields.map(([field, text]) => [fieldOf(field), text])));
      if (fields.length === 0) setFailure(error);
      return false;
    } finally {
      setBusy(false);
    }
  }
  return { busy, failure, save, reset: () => setFailure(undefined) };
}

/**
 * The properties of a button that acts without a question.
 *
 * @param failed the title of the message when it fails: "The webhook is not paused"
 */
export function useAct(failed: string, act: () => Promise<unknown>) {
  const [loading, setLoading] = useState(false);
  async function run() {
    setLoading(true);
    await act().catch((error: unknown) => notifyFailure(failed, error));
    setLoading(false);
  }
  return { loading, onClick: () => void run() };
}

/** Says in passing that something was done. */
export function notifyDone(message: string, title?: string): void {
  notifications.show({ color: "green", title, message });
}

/** Shows warnings about a URL that was saved, if there are any. */
export function notifyWarnings(warnings: readonly string[]): void {
  if (warnings.length === 0) return;
  notifications.show({
    color: "yellow",
    title: "Check the URL",
    message: warnings.join(". "),
    autoClose: 10_000,
  });
}

/** Has the browser save a file. Returns its name: that of its content with the time. */
export function saveFile(content: Blob, of: string, extension: string): string {
  const name = `${of}-${new Date().toISOString().slice(0, 19).replaceAll(":", "-")}Z.${extension}`;
  const link = document.createElement("a");
  link.href = URL.createObjectURL(content);
  link.download = name;
  link.click();
  // Once the browser has started to read it.
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
  return name;
}
