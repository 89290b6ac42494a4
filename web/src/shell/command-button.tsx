import { Button, Kbd } from "@mantine/core";
import { useDisclosure, useHotkeys } from "@mantine/hooks";
import { IconSearch } from "@tabler/icons-react";
import { type ComponentType, useState } from "react";
import { flushSync } from "react-dom";
import type { DialogProps } from "../parts/dialogs.tsx";
import { notifyFailure } from "../parts/failure.tsx";
import { useFocusBack } from "../parts/focus.ts";

const IS_APPLE = /Mac|iPhone|iPad/.test(navigator.platform);

/** The button of the command bar, and its shortcut. The bar itself is loaded when it is opened for the first time. */
export function CommandButton() {
  const [opened, { open, close }] = useDisclosure();
  const [Bar, setBar] = useState<ComponentType<DialogProps>>();

  function show() {
    // A form in a dialog would be lost by what the bar leads to.
    if (document.querySelector('[role="dialog"]')) return;
    // A dialog gives the focus to its field later by itself, and what is typed until then would be lost.
    flushSync(open);
    document.querySelector<HTMLElement>('[role="dialog"] [data-autofocus]')?.focus();
    if (Bar) return;
    import("./command-bar.tsx").then(
      ({ CommandBar }) => setBar(() => CommandBar),
      (error: unknown) => {
        close();
        notifyFailure("The command bar was not opened", error);
      },
    );
  }

  useFocusBack(opened);
  // In fields, too.
  useHotkeys([["mod+K", show]], []);
  return (
    <>
      <Button
        variant="default"
        className="command-button"
        leftSection={<IconSearch size={14} />}
        rightSection={
          <Kbd size="xs" aria-hidden>
            {IS_APPLE ? "⌘ K" : "Ctrl K"}
          </Kbd>
        }
        aria-keyshortcuts={IS_APPLE ? "Meta+K" : "Control+K"}
        onClick={show}
      >
        Search and commands
      </Button>
      {Bar && <Bar opened={opened} onClose={close} />}
    </>
  );
}
