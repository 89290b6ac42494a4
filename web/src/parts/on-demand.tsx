import { type ComponentType, cloneElement, type ReactElement, useRef, useState } from "react";
import { flushSync } from "react-dom";
import { notifyFailure } from "./failure.tsx";

/** The properties of the button of a menu. */
interface MenuButton {
  onClick?: () => void;
  onPointerEnter?: () => void;
  "aria-haspopup"?: "menu" | "dialog";
  "aria-expanded"?: boolean;
}

/** A menu around the button that opens it. */
export interface MenuProps {
  children: ReactElement;
}

/** A button, and its menu, which is loaded when it is used for the first time. */
export interface MenuOnDemandProps {
  button: ReactElement<MenuButton>;
  load: () => Promise<ComponentType<MenuProps>>;
  kind: "menu" | "dialog";
}

/** The button of a menu. The first click, or a pointer on its way to one, loads the menu. */
export function MenuOnDemand({ button, load, kind }: MenuOnDemandProps) {
  const [Menu, setMenu] = useState<ComponentType<MenuProps>>();
  const place = useRef<HTMLDivElement>(null);

  function open() {
    load().then(
      (loaded) => {
        flushSync(() => setMenu(() => loaded));
        // The button is another element by now.
        const target = place.current?.querySelector("button");
        target?.focus({ preventScroll: true });
        target?.click();
      },
      (error: unknown) => notifyFailure("The menu was not opened", error),
    );
  }

  return (
    <div ref={place}>
      {Menu ? (
        <Menu>{button}</Menu>
      ) : (
        cloneElement(button, {
          onClick: open,
          onPointerEnter: () => void load().catch(() => {}),
          "aria-haspopup": kind,
          "aria-expanded": false,
        })
      )}
    </div>
  );
}
