/** Progress messages of a run, on stderr, so that stdout contains only the table. */
export interface Show {
  /** Prints a permanent line. */
  step(this: void, line: string): void;
  /** Prints progress: one updated line on a terminal, otherwise one line every 5 s. */
  count(this: void, what: string, done: number, of: number): void;
}

const QUIET_MS = 5_000;
const number = new Intl.NumberFormat("en-US");

/** @param out the output stream */
export function createShow(out: NodeJS.WriteStream): Show {
  let last = 0;
  let unfinished = false;

  function step(line: string): void {
    out.write(`${unfinished ? "\r\x1b[K" : ""}  ${line}\n`);
    unfinished = false;
    last = Date.now();
  }

  return {
    step,
    count(what, done, of) {
      const line = `${what}: ${number.format(done)} of ${number.format(of)}`;
      if (out.isTTY) {
        out.write(`\r\x1b[K  ${line}`);
        unfinished = true;
      } else if (Date.now() - last >= QUIET_MS) {
        step(line);
      }
    },
  };
}
