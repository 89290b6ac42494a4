import { useEffect } from "react";

/** Longer than a dialog takes to go. */
const CLOSED_MS = 300;

/**
 * Gives the focus back to what opened a dialog when that and those that followed it are closed; to the page when it
 * is gone by then. A dialog by itself gives it back to the one before it, which is gone.
 */
export function useFocusBack(open: boolean): void {
  useEffect(() => {
    if (!open) return;
    const opener = document.activeElement;
    return () => {
      const closing = new Set(document.querySelectorAll('[role="dialog"]'));
      setTimeout(() => {
        const { activeElement } = document;
        const dialog = activeElement?.closest('[role="dialog"]');
        // The focus is elsewhere by now: on the page, or in a dialog that was opened since.
        if (dialog ? !closing.has(dialog) : activeElement !== document.body) return;
        const isThere = opener?.isConnected && opener !== document.body;
        const target = isThere ? opener : document.getElementById("content");
        if (target instanceof HTMLElement) target.focus({ preventScroll: true });
      }, CLOSED_MS);
    };
  }, [open]);
}
