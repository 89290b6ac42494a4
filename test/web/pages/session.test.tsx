import { expect, test } from "vitest";
import { DeliveryState } from "../../../gen/webhook/v1/delivery_pb.ts";
import { Permission } from "../../../gen/webhook/v1/options_pb.ts";
import { ReplayState } from "../../../gen/webhook/v1/replay_pb.ts";
import { DomainError } from "../../../src/contract/errors.ts";
import {
  ALL,
  aDelivery,
  ago,
  aKey,
  anIncident,
  aWebhook,
  deliveries,
  deliveryId,
  HOUR,
  incidents,
  READER,
  SECOND,
  signedIn,
  webhooks,
} from "./answers.ts";
import {
  all,
  click,
  field,
  fill,
  find,
  goTo,
  later,
  open,
  path,
  press,
  region,
  sees,
  seesNot,
  text,
} from "./page.tsx";

const NOBODY = new DomainError("API_KEY_MISSING", "sign in with an API key");
const AWAY = new DomainError("UNAVAILABLE", "the service starts");
const SIGNED_OUT = { getSession: NOBODY };

async function enter(key: string): Promise<void> {
  await fill("API key", key);
  await press("{Enter}");
}

test("the sign-in page says which keys it accepts and where the first key is; a key without these permissions gets an error that says so", async () => {
  const message = "sign in with a key that has Manage_Api_Keys or Read_Administrative_Data";
  await open("/sign-in", { ...SIGNED_OUT, signIn: new DomainError("PERMISSION_MISSING", message) });
  for (const words of ["Manage_Api_Keys", "Read_Administrative_Data", ".data/admin-key", "npm run admin-key"])
    sees(words);
  expect(field("API key")).toMatchObject({ type: "password", autocomplete: "off" });
  // The connection is secure.
  seesNot("This connection is not encrypted");
  await enter("whk_publisher");
  sees(message.slice(1), find("alert"));
});

test("the field of a wrong key says that it is wrong; after many, the page counts down the time to wait", async () => {
  const { answers } = await open("/sign-in", {
    ...SIGNED_OUT,
    signIn: new DomainError("API_KEY_UNKNOWN", "wrong"),
  });
  await enter("whk_wrong");
  sees("This key is unknown or revoked");
  expect(field("API key").getAttribute("aria-invalid")).toBe("true");
  const message = "too many wrong API keys, so your key was not checked; verify it and retry in 9 s";
  answers.signIn = new DomainError("RATE_LIMITED", message, { retryAfterMs: 9 * SECOND });
  await press("{Enter}");
  seesNot("unknown or revoked");
  sees("your key was not checked; verify it and retry in 9 s.", find("alert"));
  await later(4 * SECOND);
  sees("retry in 5 s.", find("alert"));
  await later(5 * SECOND);
  sees("retry now.", find("alert"));
});

test("a correct key gets an error if the browser does not keep the session", async () => {
  await open("/sign-in", { ...SIGNED_OUT, signIn: {} });
  await enter("whk_right");
  sees("your browser did not keep the session", find("alert"));
});

test("a page that is opened while the service is away says so, and is shown by itself", async () => {
  const { answers, calls } = await open("/webhooks", { getSession: AWAY });
  await later(15 * SECOND);
  expect(calls.getSession.length).toBeGreaterThan(2);
  sees("The service is not available at the moment", find("alert"));
  answers.getSession = signedIn();
  await later(5 * SECOND);
  find("heading", "Webhooks");
});

test("a session that may only manage keys starts at the keys; a read-only session learns which permission keys need", async () => {
  await open("/", { getSession: signedIn({ permissions: [Permission.MANAGE_API_KEYS] }) });
  find("heading", "API keys");
  expect(path()).toBe("/keys");
  const { answers } = await open("/keys", { getSession: signedIn({ permissions: READER }) });
  sees("It needs the permission Manage_Api_Keys");
  const pages = all("link", undefined, find("navigation", "Pages")).map((link) => text(link));
  expect(pages).toEqual([
    "Overview",
    "Incidents",
    "Webhooks",
    "Deliveries",
    "Customers",
    "Event types",
    "API documentation",
  ]);
  answers.signOut = AWAY;
  await click("Sign in with another key");
  sees("You are still signed in");
  Object.assign(answers, { signOut: {}, ...SIGNED_OUT });
  await click("Sign in with another key");
  find("heading", "Sign in");
});

/** Buttons that change something. */
const CHANGES =
  /again|Send|More actions|Pause|Resume|Cancel|Delete|Edit|Change|Replay|Rotate|Reveal|New|Dispatch|Turn/;
const changes = () =>
  [...all("button", CHANGES, find("main")), ...all("link", "New webhook")].map(
    (each) => each.getAttribute("aria-label") ?? text(each),
  );

test("who may only read is offered no change on any page", async () => {
  const replays = [{ id: "r1", state: ReplayState.RUNNING, created: ago(HOUR) }];
  const answers = {
    ...webhooks(aWebhook()),
    ...deliveries(aDelivery()),
    listReplays: { replays },
    ...incidents(anIncident({ id: "i1", failed: 3n })),
  };
  const offered = {
    "/": ["Dispatch now"],
    "/incidents/i1": ["Replay 3 failed…"],
    "/webhooks": ["New webhook"],
    "/webhooks/7": ["Send test event", "Pause", "Replay failed…", "Send missed events…", "More actions"],
    "/webhooks/7?tab=settings": ["Edit", "Change…"],
    "/webhooks/7?tab=verify": ["Reveal secret", "Rotate", "Turn on", "Change…"],
    "/deliveries": ["Send failed ones again…"],
    [`/deliveries/${deliveryId(1)}`]: ["Send again", "Replay failed since this one…"],
    "/replays": ["Pause", "Cancel replay"],
  };
  await open("/", answers);
  for (const [at, buttons] of Object.entries(offered)) {
    await goTo(at);
    expect(changes()).toEqual(expect.arrayContaining(buttons));
  }
  await open("/", { ...answers, getSession: signedIn({ permissions: READER }) });
  for (const at of Object.keys(offered)) {
    await goTo(at);
    expect([at, changes(), all("checkbox")]).toEqual([at, [], []]);
  }
});

const APP = "printer-app";
const APP_KEY = aKey({ id: "printer", name: "Printer", permissions: ALL, installedApplicationId: APP });
const OF_APP = { getSession: signedIn(APP_KEY) };
const OWN = aWebhook({ url: "https://receiver.example/own", apiKeyId: "printer", application: APP });
/** As the service shows it to others: without the key that owns it. */
const OF_OTHERS = aWebhook({ id: 8n, url: "https://receiver.example/of-others", apiKeyId: "" });

test("a session of an app's key shows the app's webhooks and keys, and offers neither dispatch runs nor apps", async () => {
  const delivery = aDelivery({ state: DeliveryState.PENDING, attemptCount: 0 });
  await open("/webhooks", {
    ...webhooks(OWN),
    ...OF_APP,
    sendTestEvent: { deliveryId: delivery.id },
    getDelivery: { delivery },
    listInstalledApps: { installedApps: [{ id: APP, name: "Label printer", created: ago(HOUR) }] },
    listApiKeys: { apiKeys: [APP_KEY, aKey({ id: "other", installedApplicationId: APP })] },
  });
  await click("receiver.example/own", "link");
  await click("Send test event");
  sees("Waits for the next dispatch.", region("Test event"));
  expect(all("button", "Dispatch now")).toEqual([]);
  await click("Overview", "link");
  sees("Live delivery status of your app’s webhooks");
  seesNot("Last dispatch runs");
  expect(all("button", "Dispatch now")).toEqual([]);
  await click("Installed apps", "link");
  find("link", "2 keys");
  expect(all("button", "New app")).toEqual([]);
});

test("an address that another key registered is reported, and stays that key's", async () => {
  await open("/webhooks/new", {
    ...webhooks(OWN, OF_OTHERS),
    ...OF_APP,
    listProcesses: { processes: [{ number: 1, name: "OrderDispatched", sample: "{}" }] },
    createWebhook: { webhook: OF_OTHERS, warnings: ["register another URL for a webhook of your own"] },
  });
  await click("OrderDispatched", "checkbox");
  await fill("URL", OF_OTHERS.url);
  await press("{Enter}");
  sees("register another URL for a webhook of your own");
  expect(all("dialog")).toEqual([]);
  expect(path()).toBe("/webhooks");
});

test("a browser whose session has ended is asked to sign in, after too many such calls from its address too", async () => {
  localStorage.setItem("signed-in", "1");
  const { answers } = await open("/webhooks?process=1", {
    getSession: new DomainError("LIMIT_REACHED", "too many sessions that have ended"),
    signIn: {},
  });
  sees("Your session has ended");
  answers.getSession = signedIn();
  await enter("whk_right");
  expect(path()).toBe("/webhooks?process=1");
});
