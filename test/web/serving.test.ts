import { brotliDecompressSync, gunzipSync } from "node:zlib";
import { Agent, request } from "undici";
import { describe, expect, test } from "vitest";
import { createLocalAuthority } from "../../demo/certificates.ts";
import { NONCE_PLACEHOLDER, PAGE_PATHS } from "../../src/contract/page-paths.ts";
import { part } from "../support/parts.ts";
import { sendRaw } from "../support/raw-request.ts";
import { startTestApi } from "../support/test-api.ts";
import { sharedApi } from "./web.ts";

const api = await sharedApi();

const BROWSER = { Accept: "text/html,application/xhtml+xml,*/*;q=0.8" };
const ADDRESSES = Object.values(PAGE_PATHS).map((path) => path.replace(":id", "42"));

const get = (path: string, headers: Record<string, string> = BROWSER, at = api) =>
  fetch(`${at.url}${path}`, { headers });

/** What the page loads first. */
async function files(): Promise<string[]> {
  const page = await (await get("/")).text();
  return [...page.matchAll(/\s(?:src|href)="(\/assets\/[^"]+)"/g)].map(([, path]) => path as string);
}

/** Bytes. */
const SMALLEST_PACKED = 256;

/** Bytes, packed by gzip, fonts included. A change that raises it says which part of the first page needs them. */
const MAX_FIRST_LOAD = 197_000;

/** What a browser loads before it shows a page: the document, what that names, and the page's chunk with all that it imports. */
async function firstLoad(chunk: string): Promise<string[]> {
  const named = await files();
  const entry = named.find((path) => path.endsWith(".js")) ?? "";
  const script = await (await get(entry)).text();
  const [, names = ""] = /m\.f=(\[[^\]]*\])/.exec(script) ?? [];
  const [, numbers = ""] =
    new RegExp(`import\\(.\\./${chunk}-[^)]*\\),__vite__mapDeps\\(\\[([\\d,]+)`).exec(script) ?? [];
  const imported = numbers.split(",").map((number) => (JSON.parse(names) as string[])[Number(number)]);
  return [...new Set(["/", ...named, ...imported.map((name) => `/assets${name?.slice(1)}`)])];
}

describe("the page", () => {
  test("is served at its addresses to browsers and clients that accept anything; other addresses answer 404", async () => {
    for (const address of ADDRESSES)
      for (const headers of [BROWSER, { Accept: "*/*" }]) {
        const answer = await get(address, headers);
        expect([address, answer.status]).toEqual([address, 200]);
        expect(answer.headers.get("content-type")).toBe("text/html; charset=utf-8");
        expect(answer.headers.get("cache-control")).toBe("no-cache");
      }
    for (const address of ["/nowhere/at/all", "/nowhere?from=mail.example"]) {
      const answer = await get(address);
      expect([answer.status, answer.headers.get("content-type")]).toEqual([404, "text/html; charset=utf-8"]);
      expect(answer.headers.get("content-security-policy")).toContain("default-src 'none'");
    }
  });

  test("lets browsers run and load only what the service serves, and inline what has the answer's nonce", async () => {
    const answers = await Promise.all([get("/"), get("/")]);
    const nonces = new Set<string>();
    for (const answer of answers) {
      const policy = answer.headers.get("content-security-policy") ?? "";
      const [, nonce = ""] = /script-src 'self' 'nonce-([^']+)'/.exec(policy) ?? [];
      expect(policy).toContain("default-src 'none'");
      expect(policy).toContain("frame-ancestors 'none'");
      expect(policy).not.toMatch(/unsafe|https?:|\*/);
      expect(answer.headers.get("x-content-type-options")).toBe("nosniff");
      expect(answer.headers.get("referrer-policy")).toBe("no-referrer");
      const page = await answer.text();
      expect(page).not.toContain(NONCE_PLACEHOLDER);
      for (const [, attributes = ""] of page.matchAll(/<script([^>]*)>/g)) {
        expect(attributes).toContain(`nonce="${nonce}"`);
      }
      expect(page).not.toMatch(/(?:https?:)?\/\/[\w-]+\./);
      nonces.add(nonce);
    }
    expect(nonces.size).toBe(2);
  });

  test("has files that browsers may keep for ever, packed as they take it", async () => {
    const paths = await files();
    expect(new Set(paths.map((path) => path.replace(/.*\./, "")))).toEqual(
      new Set(["css", "js", "svg", "woff2"]),
    );
    for (const path of paths) {
      const plain = await get(path, { "Accept-Encoding": "identity" });
      expect(plain.status).toBe(200);
      expect(plain.headers.get("cache-control")).toBe("public, max-age=31536000, immutable");
      expect(plain.headers.get("x-content-type-options")).toBe("nosniff");
      const content = Buffer.from(await plain.arrayBuffer());
      // The smallest and fonts, which are packed, would not get smaller.
      if (content.length < SMALLEST_PACKED || path.endsWith(".woff2")) continue;
      for (const [coding, unpack] of Object.entries({ br: brotliDecompressSync, gzip: gunzipSync })) {
        const answer = await request(`${api.url}${path}`, { headers: { "accept-encoding": coding } });
        expect(answer.headers["content-encoding"]).toBe(coding);
        expect(String(answer.headers.vary).toLowerCase()).toContain("accept-encoding");
        const packed = Buffer.from(await answer.body.arrayBuffer());
        expect(packed.length).toBeLessThan(content.length);
        expect(unpack(packed).equals(content)).toBe(true);
      }
    }
  });

  test.each(["sign-in", "overview"])(
    "is small: a browser loads little before it shows the %s page",
    async (chunk) => {
      const sizes = new Map<string, number>();
      for (const path of await firstLoad(chunk)) {
        const headers = { ...BROWSER, "accept-encoding": "gzip" };
        const answer = await request(`${api.url}${path}`, { headers });
        sizes.set(path, (await answer.body.arrayBuffer()).byteLength);
        expect([path, answer.statusCode]).toEqual([path, 200]);
      }
      expect([...sizes.keys()]).toContainEqual(expect.stringContaining(`/assets/${chunk}-`));
      const all = [...sizes.values()].reduce((sum, size) => sum + size);
      expect(all, JSON.stringify([...sizes], null, 1)).toBeLessThan(MAX_FIRST_LOAD);
    },
  );

  test("is no answer to programs: what is not asked for as a page is refused in the envelope", async () => {
    const json = { Accept: "application/json" };
    for (const [path, headers] of [
      ["/keys", json],
      ["/nowhere", json],
      ["/nowhere", { Accept: "*/*" }],
      ["/api/nowhere", BROWSER],
      ["/docs/nowhere", BROWSER],
      ["/assets/nowhere.js", BROWSER],
      ["/favicon.ico", BROWSER],
      ["/api?from=page", BROWSER],
    ] as const) {
      const answer = await get(path, headers);
      expect([path, answer.status, answer.headers.get("content-type")]).toEqual([
        path,
        404,
        "application/json; charset=utf-8",
      ]);
      expect(await answer.json()).toEqual({ Success: false, Data: null, Warnings: [expect.any(String)] });
      expect(answer.headers.get("cache-control") ?? "").not.toContain("immutable");
    }
    const post = await fetch(`${api.url}/keys`, { method: "POST", headers: BROWSER });
    expect([post.status, post.headers.get("allow")]).toEqual([400, "GET, HEAD"]);
  });

  test("serves nothing but its files", async () => {
    for (const path of [
      "/assets/../.built-from",
      "/assets/%2e%2e/.built-from",
      "/assets/..%2findex.html",
      "/.built-from",
    ]) {
      const raw = await sendRaw(
        api.httpPort,
        `GET ${path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n`,
      );
      expect(raw.split(" ")[1], path).toMatch(/^40[0-9]$/);
    }
  });
});

test("if the page is not built, its addresses say what to do and the API works", async () => {
  const bare = await startTestApi();
  try {
    const answer = await get("/keys", BROWSER, bare);
    expect(answer.status).toBe(503);
    expect(((await answer.json()) as { Warnings: string[] }).Warnings[0]).toContain("npm run build");
    expect((await bare.rest("GET", "/api/webhook/list")).status).toBe(200);
  } finally {
    await bare.stop();
  }
});

test("a process that only delivers has no page", async () => {
  const worker = await startTestApi({ services: false, page: (await part("page")).folder });
  try {
    for (const path of ["/", "/keys", ...(await files())]) {
      expect((await get(path, BROWSER, worker)).status).toBe(404);
    }
  } finally {
    await worker.stop();
  }
});

test("over TLS and HTTP/2 it is the same page with the same files", async () => {
  const authority = await createLocalAuthority();
  const tls = await authority.issue(["localhost", "127.0.0.1"]);
  const secure = await startTestApi({ page: (await part("page")).folder, tls });
  const dispatcher = new Agent({ allowH2: true, connect: { ca: authority.cert } });
  try {
    for (const path of ["/", "/keys", ...(await files())]) {
      const answer = await request(`${secure.url}${path}`, {
        dispatcher,
        headers: { accept: BROWSER.Accept },
      });
      expect([path, answer.statusCode, (await answer.body.text()) !== ""]).toEqual([path, 200, true]);
    }
  } finally {
    await dispatcher.destroy();
    await secure.stop();
  }
});
