/**
 * The browser of the component tests: one jsdom for all files of a process, wide as a desk's screen, in English. Its time zone is
 * the process's. Imported before anything that knows the DOM.
 */
import { registerHooks } from "node:module";
import { builtinEnvironments } from "vitest/runtime";
import { IN_PLACE_OF_REACT } from "../../../web/in-place-of-react.ts";

// As in the built page, also for what Node loads by itself.
const IN_PLACE = new Map(
  Object.entries(IN_PLACE_OF_REACT).map(
    (names) => names.map((name) => import.meta.resolve(name)) as [string, string],
  ),
);
registerHooks({
  resolve(specifier, context, next) {
    const found = next(specifier, context);
    const url = IN_PLACE.get(found.url);
    return url === undefined ? found : { url, shortCircuit: true };
  },
});

/** Runs a function in the next turn of the event loop. */
export const turn = setImmediate;
/** What React does later: it works for some milliseconds of each turn. */
let work = 0;
globalThis.setImmediate = ((task: () => void) => {
  work++;
  return turn(() => {
    work--;
    task();
  });
}) as typeof setImmediate;

/** Whether React has something left to do. */
export const hasWork = () => work > 0;

const { locks } = navigator;
const html = '<!doctype html><html lang="en"><body><div id="root"></div></body></html>';
await builtinEnvironments.jsdom.setup(globalThis, { jsdom: { html, url: "http://localhost/" } });

/** Media queries of the page: a desk's width, and less motion. */
const matchMedia = (media: string) => ({
  media,
  matches: media.includes("reduced-motion"),
  addEventListener() {},
  removeEventListener() {},
});

/** Nothing has a size here, and so nothing changes it. */
class NoObserver {
  observe() {}
  unobserve() {}
  disconnect() {}
}

Object.assign(globalThis, {
  matchMedia,
  ResizeObserver: NoObserver,
  IntersectionObserver: NoObserver,
  scrollTo() {},
  isSecureContext: true,
  requestAnimationFrame: (draw: (time: number) => void) => setTimeout(() => draw(Date.now()), 16),
  cancelAnimationFrame: (frame: NodeJS.Timeout) => clearTimeout(frame),
});
Object.defineProperty(navigator, "locks", { value: locks });
Object.defineProperty(document, "fonts", { value: new EventTarget() });
// Nothing is laid out: everything is in sight.
const box = { x: 0, y: 0, top: 0, left: 0, right: 200, bottom: 20, width: 200, height: 20 };
Object.assign(Element.prototype, { scrollIntoView() {}, getBoundingClientRect: () => box });
Object.defineProperties(Element.prototype, { clientWidth: { value: 1280 }, clientHeight: { value: 800 } });
// Files are not saved.
HTMLAnchorElement.prototype.click = () => {};
// Nothing is drawn, and reading the theme's styles with each page takes long.
Object.defineProperty(HTMLStyleElement.prototype, "innerHTML", { set() {} });

/** The locale of the page, whatever the machine's is. */
const LOCALE = "en-GB";
for (const name of ["DateTimeFormat", "NumberFormat", "RelativeTimeFormat"] as const) {
  const construct = (target: new (...some: unknown[]) => object, [, options]: unknown[]) =>
    new target(LOCALE, options);
  Object.assign(Intl, { [name]: new Proxy(Intl[name], { construct } as ProxyHandler<object>) });
}
const grouped = new Intl.NumberFormat();
for (const { prototype } of [Number, BigInt])
  prototype.toLocaleString = function () {
    return grouped.format(this as number | bigint);
  };
// Vitest's worker would end by itself before its process has been told that it may.
setInterval(() => {}, 2 ** 30);
