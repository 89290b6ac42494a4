/** The pages of documents look like the settings page, whose font they load; while that is not built, fonts are the system's. */
export const DRESS = `@font-face { font-family: Geist; src: url("../assets/geist-latin-wght-normal.woff2") format("woff2"); font-weight: 100 900; font-display: swap; }
:root { color-scheme: light dark; --text: light-dark(#1d232e, #d3d8e0); --quiet: light-dark(#4f5968, #a7afbd); --line: light-dark(#e3e6ec, #2b323e); --frame: light-dark(#f7f8fa, #11151c); --sheet: light-dark(#fff, #161b23); --link: light-dark(#2f43a6, #bfcaf7); --accent: light-dark(#2f43a6, #3a51c4); --red: light-dark(#c92a2a, #b02525); --sans: Geist, "Segoe UI", system-ui, -apple-system, sans-serif; --mono: ui-monospace, "SF Mono", Menlo, Consolas, monospace; }
:root[data-scheme=light] { color-scheme: light; }
:root[data-scheme=dark] { color-scheme: dark; }
body { margin: 0; font: 14px/1.5 var(--sans); background: var(--sheet); color: var(--text); -webkit-font-smoothing: antialiased; }
.bar { display: flex; flex-wrap: wrap; align-items: center; gap: .25rem 1.25rem; min-height: 48px; padding: 0 1rem; box-sizing: border-box; background: var(--frame); border-bottom: 1px solid var(--line); font-size: 13px; }
.bar a { color: var(--quiet); text-decoration: none; }
.bar a:hover, .bar a[aria-current] { color: var(--text); }
.bar a:first-child { margin-inline-end: auto; color: var(--text); font-size: 14px; font-weight: 620; }
a:focus-visible, button:focus-visible { outline: 2px solid var(--link); outline-offset: 2px; }
`;

/** The script that takes over the choice of light or dark that the settings page keeps in the browser. */
export const SCHEME_SCRIPT = `const chosen = localStorage.getItem("color-scheme");
if (chosen === "light" || chosen === "dark") document.documentElement.dataset.scheme = chosen;
const isDark = chosen === "dark" || (chosen !== "light" && matchMedia("(prefers-color-scheme: dark)").matches);
document.documentElement.classList.toggle("dark-mode", isDark);
`;

/** The names and paths of the documents. */
const DOCUMENTS = { "Event types": "/events", "API documentation": "/docs" };

/**
 * The head of the pages of documents: the way to the settings page, and to each other.
 *
 * @param base the path prefix of the service
 * @param current the path of the shown document
 */
export function documentBar(base: string, current: string): string {
  const links = Object.entries(DOCUMENTS).map(
    ([name, path]) => `<a href="${base}${path}"${path === current ? ' aria-current="page"' : ""}>${name}</a>`,
  );
  return `<header><nav class="bar" aria-label="Documents"><a href="${base}/">Webhook service</a>${links.join("")}</nav></header>`;
}
