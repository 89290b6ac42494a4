import { runInNewContext } from "node:vm";
import { expect, test } from "vitest";
import { useApi } from "../../support/test-api.ts";

const api = await useApi();

async function get(path: string) {
  const answer = await fetch(`${api.url}${path}`);
  return { path, status: answer.status, headers: answer.headers, text: await answer.text() };
}
const page = await get("/docs");
/** Everything that the page loads. */
const assets = await Promise.all(
  [...page.text.matchAll(/<(?:script|link|img)[^>]*\s(?:src|href)="([^"]+)"/g)].map(([, path]) =>
    get(path as string),
  ),
);
const textOf = (path: string) => assets.find((asset) => asset.path === path)?.text ?? "";

test("the page and everything that it loads are served to everyone, as what they are", async () => {
  const all = [page, await get("/docs/"), ...assets];
  expect(all.filter(({ status, text }) => status !== 200 || text === "")).toEqual([]);
  expect(Object.fromEntries(all.map(({ path, headers }) => [path, headers.get("content-type")]))).toEqual({
    "/docs": "text/html; charset=utf-8",
    "/docs/": "text/html; charset=utf-8",
    "/docs/swagger-ui.css": "text/css; charset=utf-8",
    "/docs/favicon-32x32.png": "image/png",
    "/docs/style.css": "text/css; charset=utf-8",
    "/docs/scheme.js": "text/javascript; charset=utf-8",
    "/docs/swagger-ui-bundle.js": "text/javascript; charset=utf-8",
    "/docs/start.js": "text/javascript; charset=utf-8",
  });
});

test("the page asks for nothing from elsewhere: not in its text, its start, nor its styles", () => {
  const start = textOf("/docs/start.js");
  for (const text of [page.text, start]) expect(text).not.toMatch(/(?:https?:)?\/\/\w/);
  expect(start).toContain('url: "/openapi.json"');
  expect(start).toContain("validatorUrl: null");
  expect(textOf("/docs/swagger-ui.css")).not.toMatch(/@import|url\((?!\s*["']?data:)/);
});

test("the policy lets browsers run and load only what this service serves, and nothing inline", async () => {
  for (const { headers } of [page, await get("/openapi.json"), ...assets]) {
    const policy = headers.get("content-security-policy") ?? "";
    expect(policy).toContain("default-src 'none'; script-src 'self'; style-src 'self'");
    expect(policy).not.toMatch(/unsafe|https?:|\*/);
    expect(headers.get("x-content-type-options")).toBe("nosniff");
  }
  expect(page.text).not.toMatch(/<style|\sstyle=|\son\w+=|<script(?![^>]*\ssrc=)/);
});

test.each(["/docs/package.json", "/docs/swagger-ui-bundle.js.map", "/docs/%2e%2e/package.json"])(
  "a file of the package that the page does not need is not served: %s",
  async (path) => expect((await get(path)).status).toBe(404),
);

test("the page lists each operation once, and says the prefixes and how to call the other services", async () => {
  const { info, paths } = JSON.parse((await get("/openapi.json")).text);
  for (const text of ["`/api/v1` and `/api/v2`", "/webhook.v1.DeliveryService/ListDeliveries", "grpcurl"])
    expect(info.description).toContain(text);
  expect(Object.keys(paths)).toContain("/api/v1/webhook/list");
  type Tags = Map<string, object>;
  type Plugin = () => {
    statePlugins: { spec: { wrapSelectors: { taggedOperations: (original: () => object) => () => Tags } } };
  };
  let plugins: Plugin[] = [];
  const swagger = (options: { plugins: Plugin[] }) => {
    plugins = options.plugins;
  };
  runInNewContext(textOf("/docs/start.js"), { SwaggerUIBundle: swagger });
  const tags = new Map([
    ["webhooks", {}],
    ["v1", {}],
    ["v2", {}],
  ]);
  // The page's maps are immutable ones, whose filter has these parameters.
  const listed = {
    filter: (keep: (value: object, tag: string) => boolean) =>
      new Map([...tags].filter(([tag, value]) => keep(value, tag))),
  };
  const shown = plugins[0]?.().statePlugins.spec.wrapSelectors.taggedOperations(() => listed)();
  expect([...(shown ?? [])].map(([tag]) => tag)).toEqual(["webhooks"]);
});
