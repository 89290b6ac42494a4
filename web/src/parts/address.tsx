import { Fragment } from "react";

/** After what an address is taken to a new line: before it is broken in the middle of a word. */
const PARTS = /(?<=[^/:]\/|[?&])(?=[^/])/;

/** A receiver's address, that breaks between its parts where it has no room in one line. */
export function Address({ url }: { url: string }) {
  return url.split(PARTS).map((part, index) => (
    // biome-ignore lint/suspicious/noArrayIndexKey: the parts are told apart by their places alone
    <Fragment key={index}>
      {index > 0 && <wbr />}
      {part}
    </Fragment>
  ));
}
