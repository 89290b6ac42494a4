const WIDTH = 880;
const PLOT = { left: 64, top: 34, width: 796, height: 120 };
const PANEL_HEIGHT = 190;
/** The maximum number of points per line. Each is the maximum of its interval. */
const POINTS = 400;

export const BLUE = "#2563eb";
export const ORANGE = "#d97706";
export const GREY = "#9ca3af";

/** The values of one time. */
export interface Timed {
  /** Seconds since the start. */
  second: number;
}

/** A name, a colour, and the value of a sample. */
export type Line<T> = [name: string, colour: string, of: (sample: T) => number];

/** A figure over time, with one or more lines. */
export type Panel<T> = [title: string, ...Line<T>[]];

/** The samples as an SVG image: one panel per figure over the time. */
export function toChart<T extends Timed>(
  title: string,
  panels: readonly Panel<T>[],
  samples: readonly T[],
): string {
  const height = panels.length * PANEL_HEIGHT;
  const drawn = panels.map(
    ([heading, ...lines], n) =>
      `<g transform="translate(0 ${n * PANEL_HEIGHT})">${draw(heading, lines, samples)}</g>`,
  );
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${height}" font-family="sans-serif" font-size="12">
<title>${title}</title>
<rect width="${WIDTH}" height="${height}" fill="#fff"/>
${drawn.join("\n")}
</svg>\n`;
}

function draw<T extends Timed>(title: string, lines: readonly Line<T>[], samples: readonly T[]): string {
  const { left, top, width, height } = PLOT;
  const most = niceMost(Math.max(...samples.flatMap((sample) => lines.map(([, , of]) => of(sample)))));
  const seconds = samples.at(-1)?.second ?? 1;
  const y = (value: number) => top + height * (1 - value / most);
  const text = (x: number, at: number, words: string, more: string) =>
    `<text x="${x}" y="${at}" ${more}>${words}</text>`;
  const grid = [0, 0.5, 1].map((part) => {
    const value = (most * part).toLocaleString("en-US");
    const at = y(most * part);
    return `<path d="M${left} ${at}h${width}" stroke="#e5e7eb"/>${text(left - 8, at + 4, value, 'text-anchor="end"')}`;
  });
  const times = [0, 0.25, 0.5, 0.75, 1].map((part) => {
    const minutes = `${Math.round((seconds * part) / 6) / 10} min`;
    return text(left + width * part, top + height + 18, minutes, 'text-anchor="middle"');
  });
  const size = Math.max(1, Math.ceil(samples.length / POINTS));
  const paths = lines.map(([name, colour, of], n) => {
    const points = samples.flatMap(({ second }, first) => {
      if (first % size > 0) return [];
      const value = Math.max(...samples.slice(first, first + size).map(of));
      return [`${(left + (width * second) / seconds).toFixed(1)} ${y(value).toFixed(1)}`];
    });
    const label = text(WIDTH - 20 - n * 110, 20, name, `text-anchor="end" fill="${colour}"`);
    return `<path d="M${points.join("L")}" fill="none" stroke="${colour}" stroke-width="1.5"/>${label}`;
  });
  return [text(left, 20, title, 'font-weight="bold"'), ...grid, ...times, ...paths].join("");
}

/** The next value of 1, 2 and 5 times a power of ten. */
function niceMost(value: number): number {
  const power = 10 ** Math.floor(Math.log10(Math.max(value, 0.01)));
  return ([1, 2, 5, 10].find((step) => step * power >= value) ?? 10) * power;
}
