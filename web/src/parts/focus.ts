import { useEffect } from "react";

/**
 * Gives the focus back to a button that is enabled again. A busy button is disabled, so that it loses the focus. Mouse users, who
 * see no focus, keep none.
 */
export function useFocusOfBusyButtons(): void {
  useEffect(() => {
    let focused: EventTarget | null = null;
    const onFocus = ({ target }: FocusEvent) => {
      focused = target instanceof HTMLButtonElement && target.matches(":focus-visible") ? target : null;
    };
    const onBlur = ({ target }: FocusEvent) => {
      if (target instanceof HTMLButtonElement && !target.disabled) focused = null;
    };
    const observer = new MutationObserver((changes) => {
      for (const { target } of changes) {
        if (target !== focused || document.activeElement !== document.body) continue;
        if (target instanceof HTMLButtonElement && !target.disabled) target.focus({ preventScroll: true });
      }
    });
    document.addEventListener("focusin", onFocus);
    document.addEventListener("focusout", onBlur);
    observer.observe(document.body, { subtree: true, attributeFilter: ["disabled"] });
    return () => {
      document.removeEventListener("focusin", onFocus);
      document.removeEventListener("focusout", onBlur);
      observer.disconnect();
    };
  }, []);
}

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
