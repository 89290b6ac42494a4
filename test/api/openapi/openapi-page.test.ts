import { expect, test } from "vitest";
import { useApi } from "../../support/test-api.ts";

const api = await useApi();

const get = (path: string) => fetch(`${api.url}${path}`);

/** Everything that the page loads. */
async function assets(): Promise<string[]> {
  const page = await (await get("/docs")).text();
  return [...page.matchAll(/<(?:script|link|img)[^>]*\s(?:src|href)="([^"]+)"/g)].map(
    ([, path]) => path as string,
  );
}

test("the page is served to everyone, with and without a slash at its end", async () => {
  for (const path of ["/docs", "/docs/"]) {
    const answer = await get(path);
    expect(answer.status).toBe(200);
    expect(answer.headers.get("content-type")).toBe("text/html; charset=utf-8");
  }
});

test("everything that the page loads is served, as what it is", async () => {
  const types = new Map<string, string | null>();
  for (const path of await assets()) {
    const answer = await get(path);
    expect([path, answer.status, (await answer.arrayBuffer()).byteLength > 0]).toEqual([path, 200, true]);
    types.set(path, answer.headers.get("content-type"));
  }
  expect(Object.fromEntries(types)).toEqual({
    "/docs/swagger-ui.css": "text/css; charset=utf-8",
    "/docs/favicon-32x32.png": "image/png",
    "/docs/swagger-ui-bundle.js": "text/javascript; charset=utf-8",
    "/docs/start.js": "text/javascript; charset=utf-8",
  });
});

test("the page asks for nothing from elsewhere: not in its text, its start, nor its styles", async () => {
  for (const path of ["/docs", "/docs/start.js"]) {
    expect(await (await get(path)).text()).not.toMatch(/(?:https?:)?\/\/\w/);
  }
  const styles = await (await get("/docs/swagger-ui.css")).text();
  const addresses = [...styles.matchAll(/url\(\s*["']?([^"')]{0,20})/g)].map(
    ([, address]) => address as string,
  );
  for (const address of addresses) expect(address).toMatch(/^data:/);
  expect(styles).not.toMatch(/@import/);
  const start = await (await get("/docs/start.js")).text();
  expect(start).toContain('url: "/openapi.json"');
  expect(start).toContain("validatorUrl: null");
});

test("browsers are told to run and load only what this service serves, and nothing inline", async () => {
  for (const path of ["/docs", "/openapi.json", ...(await assets())]) {
    const { headers } = await get(path);
    const policy = headers.get("content-security-policy") ?? "";
    expect(policy).toContain("default-src 'none'; script-src 'self'; style-src 'self'");
    expect(policy).not.toMatch(/unsafe|https?:|\*/);
    expect(headers.get("x-content-type-options")).toBe("nosniff");
  }
  const page = await (await get("/docs")).text();
  expect(page).not.toMatch(/<style|\sstyle=|\son\w+=|<script(?![^>]*\ssrc=)/);
});

test("a file of the package that the page does not need is not served", async () => {
  for (const path of [
    "/docs/package.json",
    "/docs/swagger-ui-bundle.js.map",
    "/docs/../package.json",
    "/docs/%2e%2e/package.json",
  ]) {
    expect((await get(path)).status).toBe(404);
  }
});
