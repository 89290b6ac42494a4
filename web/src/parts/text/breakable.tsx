import { Fragment } from "react";

/** After what an address is taken to a new line: before it is broken in the middle of a word. */
const PARTS = /(?<=[^/:]\/|[?&.])(?=[^/\s])/;

/** An address, or a text with one in it, that breaks between the address's parts where it has no room in one line. */
export function Breakable({ text }: { text: string }) {
  return text.split(PARTS).map((part, index) => (
    // biome-ignore lint/suspicious/noArrayIndexKey: the parts are told apart by their places alone
    <Fragment key={index}>
      {index > 0 && <wbr />}
      {part}
    </Fragment>
  ));
}
