/** Tells whoever waits how far a run is; on standard error, so that the table alone is the output. */
export interface Show {
  /** A line that stays. */
  step(this: void, line: string): void;
  /** How far something has come: one line that changes on a terminal, one every 5 s elsewhere. */
  count(this: void, what: string, done: number, of: number): void;
}

const QUIET_MS = 5_000;
const number = new Intl.NumberFormat("en-US");

/** @param out where to write */
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
