import type { MessageInitShape } from "@bufbuild/protobuf";
import { expect, test } from "vitest";
import type { MaskedRequestSettingsSchema } from "../../../gen/webhook/v1/request_settings_pb.ts";
import { DomainError } from "../../../src/contract/errors.ts";
import { aWebhook, CHANGED_MEANWHILE, invalid, webhooks } from "./answers.ts";
import {
  type Answers,
  all,
  click,
  fill,
  find,
  later,
  open,
  region,
  sees,
  seesNot,
  text,
  value,
} from "./page.tsx";

const section = () => region("Headers and authentication");
const change = () => click("Change…", "button", section());
const tryIt = () => click("Send a test request");
/** What the service tells of stored settings. */
const STORED = { headerNames: ["X-Tenant"], basicUsername: "shop" };

type Settings = MessageInitShape<typeof MaskedRequestSettingsSchema>;

const openSettings = (settings: Settings, answers: Answers = {}) =>
  open("/webhooks/7?tab=settings", {
    ...webhooks(aWebhook()),
    getWebhookRequestSettings: { settings, revision: 1n },
    tryWebhookRequest: { accepted: true, status: 200, durationMs: 12 },
    ...answers,
  });

test("headers are refused in the service's words, tried as they stand, and empty ones are not saved", async () => {
  const refused = invalid("settings.headers", "contains Content-Length, which HTTP or this service sets");
  const { calls, answers } = await openSettings({}, { setWebhookRequestSettings: refused });
  sees("None: deliveries carry the standard headers only.", section());
  await change();
  // An empty row is there at once.
  await fill("Name of header 1", "Content-Length");
  await fill("Value of header 1", "4711");
  await click("Save");
  sees("Content-Length, which HTTP or this service sets");
  await click("Add a header");
  await tryIt();
  sees("The endpoint answered 200");
  // The outcome is shown only beside the settings that it is of.
  await fill("Name of header 1", "X-Tenant");
  seesNot("The endpoint answered 200");
  answers.setWebhookRequestSettings = {};
  await click("Save");
  expect(calls.setWebhookRequestSettings.at(-1)?.settings?.headers).toMatchObject([
    { name: "X-Tenant", value: "4711" },
  ]);
});

test("the response to a test request is shown as text, not as HTML", async () => {
  const responseStart = '<b id="injected">bold</b><script>injected()</script>';
  const tried = { accepted: false, status: 429, error: "Retry-After: 9 s", durationMs: 1, responseStart };
  await openSettings({}, { tryWebhookRequest: tried });
  await change();
  await tryIt();
  sees(responseStart);
  sees("Retry-After: 9 s.");
  expect(document.querySelector("#injected")).toBeNull();
});

test("settings that the service cannot decrypt are removed from the page, after a question", async () => {
  const { calls } = await openSettings(
    {},
    { getWebhookRequestSettings: new DomainError("STATE_NOT_FIT", "decrypted with neither key") },
  );
  sees("Decrypted with neither key", section());
  expect(all("button", "Change…", section())).toEqual([]);
  await click("Remove the stored settings…");
  await click("Remove settings");
  expect(calls.setWebhookRequestSettings).toHaveLength(1);
});

test("settings that could not be read are not offered for a change, which would erase them", async () => {
  const { answers } = await openSettings(STORED, {
    getWebhookRequestSettings: new DomainError("UNAVAILABLE", "the service starts"),
  });
  await later(10_000);
  expect(all("button", undefined, section()).map((button) => text(button))).toEqual(["Try again"]);
  answers.getWebhookRequestSettings = { settings: STORED };
  await click("Try again", "button", section());
  sees("Basic, user shop", section());
  await change();
  expect(value("Name of header 1")).toBe("X-Tenant");
});

test("settings that somebody else has saved since the dialog opened are not written over", async () => {
  const { answers, calls } = await openSettings({}, { setWebhookRequestSettings: CHANGED_MEANWHILE });
  await change();
  await fill("Name of header 1", "X-Mine");
  await fill("Value of header 1", "1");
  answers.getWebhookRequestSettings = { settings: { headerNames: ["X-Theirs"] }, revision: 2n };
  await click("Save");
  sees("This webhook was changed meanwhile");
  await click("Load the current values");
  expect(value("Name of header 1")).toBe("X-Theirs");
  expect(calls.setWebhookRequestSettings).toHaveLength(1);
});

test("OAuth 2.0 and certificates are tried and saved, shown without secrets, and kept unless they are replaced", async () => {
  const { calls, answers } = await openSettings({});
  const pick = (group: string, option: string) => click(find("radio", option, find("radiogroup", group)));
  await change();
  await click("OAuth 2.0", "radio");
  const fields = {
    "Token URL": "https://login.example/token",
    "Client id": "shop",
    "Client secret": "right",
    "Scopes (optional)": "orders",
  };
  for (const [label, text] of Object.entries(fields)) await fill(label, text);
  await click(/in the body/, "checkbox");
  await pick("Certificate authorities", "New");
  await fill("Private authorities", "of the shop");
  await pick("Client certificate", "New");
  await fill("Certificate", "certificate");
  await fill("Private key", "key");
  await tryIt();
  const settings = {
    authentication: {
      case: "oauth2",
      value: {
        tokenUrl: "https://login.example/token",
        clientId: "shop",
        clientSecret: "right",
        scope: "orders",
        secretInBody: true,
      },
    },
    tls: {
      clientCertificate: { certificate: "certificate", key: "key" },
      authorities: { certificates: "of the shop" },
    },
  };
  expect(calls.tryWebhookRequest).toMatchObject([{ settings }]);
  const authority = { subject: "CN=root", issuer: "CN=root" };
  const stored: Settings = {
    oauth2: { tokenUrl: "https://login.example/token", clientId: "shop", secretInBody: true },
    clientCertificate: { subject: "CN=shop", issuer: "CN=root" },
    authorities: [authority],
  };
  answers.getWebhookRequestSettings = { settings: stored, revision: 2n };
  await click("Save");
  expect(calls.setWebhookRequestSettings).toMatchObject([{ settings }]);
  sees("OAuth 2.0, client shop", section());
  sees("https://login.example/token", section());
  sees(/CN=shop, issued by CN=root/, section());
  await change();
  expect(value("Client secret")).toBe("");
  await pick("Certificate authorities", "Public");
  await tryIt();
  const kept = calls.tryWebhookRequest.at(-1)?.settings;
  expect(kept?.authentication.value).not.toHaveProperty("clientSecret");
  expect(kept?.tls?.authorities).toBeUndefined();
  expect(kept?.tls?.clientCertificate?.key).toBeUndefined();
  expect(kept?.tls?.clientCertificate).toBeDefined();
});

test("a URL of another host asks for headers and credentials at once, and saves them with it", async () => {
  const { calls } = await openSettings(STORED);
  await click("Edit");
  await fill("URL", "https://shop.example/another");
  expect(all("textbox", "X-Tenant")).toEqual([]);
  await fill("URL", "https://elsewhere.example/hooks");
  await click("Save changes");
  sees("Enter the value of X-Tenant.");
  sees("Enter the password.");
  await fill("X-Tenant", "4712");
  await fill(/^Password/, "new");
  await click("Save changes");
  expect(calls.updateWebhook).toMatchObject([
    {
      url: "https://elsewhere.example/hooks",
      requestSettings: {
        headers: [{ name: "X-Tenant", value: "4712" }],
        authentication: { case: "basic", value: { username: "shop", password: "new" } },
      },
    },
  ]);
});
