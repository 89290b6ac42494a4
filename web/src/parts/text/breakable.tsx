import { Text } from "@mantine/core";
import { Fragment } from "react";
import { addressParts } from "./words.ts";

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

/** The number of characters at the end that are always shown. */
const END = 9;

/** A URL. */
export interface AddressInOneLineProps {
  url: string;
  /** Whether the host looks like a link, beside a dimmed path. Defaults to a plain text. */
  hasLinkedHost?: boolean;
}

/**
 * Host and path of a URL on one line, for a parent that truncates. Where it has no room, its middle is cut, so that URLs
 * that only differ in their ends can be told apart. The whole text stays in the page and can be selected and copied.
 */
export function AddressInOneLine({ url, hasLinkedHost = false }: AddressInOneLineProps) {
  const [host, path] = addressParts(url);
  const end = path.slice(-END);
  const style = hasLinkedHost ? { c: "dimmed", fw: 400 } : {};
  return (
    <>
      {/* Most characters are narrower than `0`, whose width is 1ch. The start is never gone. */}
      <Text
        span
        inherit
        className="address-start"
        style={{ maxWidth: `max(4ch, 100% - ${end.length}ch)` }}
        {...style}
      >
        {hasLinkedHost ? (
          <Text span inherit fw={550} c="var(--mantine-color-anchor)">
            {host}
          </Text>
        ) : (
          host
        )}
        {/* Not an element: one that is cut as a whole would not count as a part of the visible text. */}
        {path.slice(0, -END)}
      </Text>
      <Text span inherit {...style}>
        {end}
      </Text>
    </>
  );
}
