import type { ReactNode } from "react";

/** The appearance of a state. */
export interface StatusMarkProps {
  /** A word or two: "Failing". */
  label: string;
  colour: "gray" | "blue" | "green" | "orange" | "red";
  icon: ReactNode;
  /** Shown while the pointer rests on it. */
  meaning?: string | undefined;
}

/** A state in a word, a sign and a colour. Only states that need attention, orange and red, have a coloured ground. */
export function StatusMark({ label, colour, icon, meaning }: StatusMarkProps) {
  return (
    <span className="status" data-colour={colour} title={meaning}>
      <span className="status-sign" aria-hidden>
        {icon}
      </span>
      {label}
    </span>
  );
}
