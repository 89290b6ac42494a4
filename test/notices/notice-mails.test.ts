import type { AddressInfo } from "node:net";
import pino from "pino";
import { SMTPServer, type SMTPServerOptions } from "smtp-server";
import { beforeEach, expect, onTestFinished, test } from "vitest";
import { type Db, rows } from "../../src/lib/pg/database.ts";
import { digestMail } from "../../src/notices/digest-mail.ts";
import { keepNoticeDigest, type NoticeDigest, readNoticeDigest } from "../../src/notices/notice-digest.ts";
import { startNoticeMails } from "../../src/notices/notice-mails.ts";
import { deleteOldRollups } from "../../src/stats/rollups.ts";
import { observed } from "../delivery/engine-parts.ts";
import { openQueueDatabase } from "../queue/queue.ts";
import { aWebhook } from "../support/builders.ts";
import { localCertificate } from "../support/receivers.ts";
import { until } from "../support/wait.ts";

const db = await openQueueDatabase();
let lines: Record<string, unknown>[] = [];
const log = pino({ base: null }, { write: (line: string) => void lines.push(JSON.parse(line)) });
beforeEach(() => {
  lines = [];
});

/** A webhook with this health, as folding statistics stores it. */
async function failing(name: string): Promise<bigint> {
  const id = await aWebhook({ name }).at(`https://${name}.example/?token=s3cret-`).in(db);
  await db.raw(
    `insert into webhook_health (webhook_id, health, since, last_failure, last_error)
      values (?, 'failing', now(), now(), 'HTTP status 503')`,
    [String(id)],
  );
  return id;
}

/** Counts of a webhook so long ago, as folding statistics stores them, all others 0. */
async function counted(
  id: bigint,
  ago: string,
  { attempts = 2, failedAttempts = 0, failed = 0 },
  unit: "minute" | "hour" = "minute",
): Promise<void> {
  await db.raw(
    `insert into rollup_${unit}s
        (webhook_id, start, attempts, failed_attempts, delivered, failed, cancelled, total_ms, longest_ms, latency)
      values (?, date_trunc('${unit}', now() - ?::interval), ?, ?, 0, ?, 0, 0, 0, '{}')`,
    [String(id), ago, attempts, failedAttempts, failed],
  );
}

/** Stores the latest digest: the webhooks that it reported as failing, and the minute until which it counted, so long ago. */
async function reportedBefore(ids: readonly bigint[], ago: string): Promise<void> {
  await db.raw(
    `insert into settings (name, value) select 'notice digest', json_build_object('failing', ?::json,
      'disabled', '[]'::json, 'until', date_trunc('minute', now() - ?::interval))`,
    [JSON.stringify(ids.map(String)), ago],
  );
}

/** The mail of the next digest, which counts as sent; undefined without news. */
async function nextMail(): Promise<string | undefined> {
  const digest = await readNoticeDigest(db);
  await keepNoticeDigest(db, digest);
  const mail = digestMail(digest);
  return mail && `${mail.subject}\n${mail.text}`;
}

test("a digest names what fails, by name and host, what has recovered, and nothing without news", async () => {
  const [shop, store] = [await failing("shop"), await failing("store")];
  const first = await nextMail();
  expect(first).toContain("Webhook service: 2 webhooks failing\n");
  expect(first).toMatch(
    new RegExp(`webhook ${shop} "shop", shop\\.example: since .* UTC; last error: HTTP status 503`),
  );
  expect(first).toContain(`webhook ${store} "store"`);
  expect(first).not.toContain("s3cret");
  expect(await nextMail()).toBeUndefined();
  await counted(shop, "0", { failedAttempts: 1 });
  await db.raw("delete from webhook_health where webhook_id = ?", [String(shop)]);
  const second = await nextMail();
  expect(second).toContain("Webhook service: 1 webhook recovered\n");
  expect(second).toMatch(new RegExp(`Recovered:\n- webhook ${shop} `));
  expect(second).toMatch(new RegExp(`Still failing:\n- webhook ${store} `));
});

test("a webhook that answered until it began to fail, and that nothing was sent to since, has not recovered", async () => {
  const webhook = await failing("shop");
  await counted(webhook, "0", { failedAttempts: 2 });
  await counted(webhook, "1 minute", { failedAttempts: 1 });
  expect(await nextMail()).toContain("1 webhook failing");
  await db.raw("delete from webhook_health");
  expect(await nextMail()).toBeUndefined();
});

test("failed deliveries are counted per webhook since the latest digest, and disabled webhooks have their reason", async () => {
  const webhook = await aWebhook().at("https://shop.example/").paused().in(db);
  for (const minutes of [2, 3, 4]) await counted(webhook, `${minutes} minutes`, { failed: minutes });
  // The latest digest reported up to three minutes ago.
  await reportedBefore([], "3 minutes");
  await db.raw(
    `insert into webhook_breakers
        (webhook_id, max_failures, failing_s, probe_s, disable_s, disable_on_gone, resend, state, reason)
      values (?, 10, 1800, 60, 432000, true, false, 'disabled', 'the endpoint answered 410 Gone')`,
    [String(webhook)],
  );
  const mail = await nextMail();
  expect(mail).toMatch(/Webhook service: 1 webhook disabled, [25] deliveries failed/);
  expect(mail).toContain("; the endpoint answered 410 Gone");
  expect(mail).toMatch(new RegExp(`webhook ${webhook}, shop.example: [25]\n`));
});

test("a filter that was switched off is reported, and later as still switched off", async () => {
  const webhook = await aWebhook().at("https://shop.example/").in(db);
  await db.raw("update webhooks set filter = 'true', filter_stopped = now() where id = ?", [String(webhook)]);
  const first = await nextMail();
  expect(first).toContain("Webhook service: 1 filter switched off\n");
  expect(first).toMatch(new RegExp(`all events are sent .*:\n- webhook ${webhook}, shop.example: since `));
  expect(await nextMail()).toBeUndefined();
  await failing("store");
  expect(await nextMail()).toMatch(new RegExp(`still switched off:\n- webhook ${webhook}, `));
});

test("failed deliveries and recovered webhooks are reported for the whole time since the latest digest, however long", async () => {
  const [recovered, quiet] = [await aWebhook().in(db), await aWebhook().in(db)];
  const failures = [
    [recovered, 62, 1],
    [recovered, 40, 1],
    [recovered, 2, 1],
    [quiet, 60, 1],
    [quiet, 40, 2],
  ] as const;
  for (const unit of ["minute", "hour"] as const)
    for (const [id, hours, failed] of failures)
      await counted(id, `${hours} hours`, { failedAttempts: failed, failed }, unit);
  await reportedBefore([recovered, quiet], "60 hours");
  await deleteOldRollups(db, new Date(0));
  const digest = await readNoticeDigest(db);
  expect(digest.failed.map(({ id, deliveries }) => [id, deliveries])).toEqual([
    [quiet, 3],
    [recovered, 2],
  ]);
  expect(digest.recovered.map(({ id }) => id)).toEqual([recovered]);
  // Its minutes are gone, so the hour of the latest digest is counted from its beginning.
  const [hour] = await rows(db, "select date_trunc('hour', now() - interval '60 hours') as start");
  expect(hour).toEqual({ start: digest.from });
});

test("texts of others stay on their line, and long lists end with a count", () => {
  const date = new Date("2026-11-21T09:30:00Z");
  const webhook = {
    id: 1n,
    name: "a\r\nb\u2028c",
    targetUrl: "https://shop.example/x",
    customer: "acme\n1",
    appName: "App\n1",
  };
  const failing = { ...webhook, since: date, lastError: "x".repeat(500), isNew: true };
  const nothing: NoticeDigest = {
    failing: [],
    disabled: [],
    filterStopped: [],
    recovered: [],
    failed: [],
    from: date,
    until: date,
    state: "",
  };
  const mail = digestMail({ ...nothing, failing: Array.from({ length: 52 }, () => failing) });
  const [title, line, ...rest] = mail?.text.trimEnd().split("\n") ?? [];
  expect(title).toBe("Failing now:");
  expect(line).toMatch(
    /^- webhook 1 "a b c" of App 1 of customer acme 1, shop\.example: since 2026-11-21 09:30 UTC; last error: x{199}…$/,
  );
  expect(rest.at(-1)).toBe("- and 2 more");
  expect(rest).toHaveLength(50);
  expect(digestMail(nothing)).toBeUndefined();
});

test("a digest names the customer of a webhook, and none for the operator's", async () => {
  const [shop, store] = [await failing("shop"), await failing("store")];
  await db.raw("update webhooks set customer = 'acme' where id = ?", [String(shop)]);
  const mail = await nextMail();
  expect(mail).toContain(`webhook ${shop} "shop" of customer acme, shop.example: since`);
  expect(mail).toContain(`webhook ${store} "store", store.example: since`);
});

/** A real SMTP server until the end of the test; answers its port and what it has accepted. */
async function startSmtp(options: SMTPServerOptions = {}) {
  const mails: { from: string; to: string[]; text: string; user: unknown; secure: boolean }[] = [];
  const server = new SMTPServer({
    ...(await localCertificate()),
    disabledCommands: ["AUTH"],
    onData(stream, { envelope, user, secure }, done) {
      const chunks: Buffer[] = [];
      stream.on("data", (chunk: Buffer) => chunks.push(chunk));
      stream.on("end", () => {
        const from = envelope.mailFrom === false ? "" : envelope.mailFrom.address;
        const to = envelope.rcptTo.map(({ address }) => address);
        mails.push({ from, to, text: Buffer.concat(chunks).toString(), user, secure });
        done();
      });
    },
    ...options,
  });
  // A client that refuses to go on is an error of its connection.
  server.on("error", () => {});
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  onTestFinished(() => new Promise<void>((resolve) => server.close(() => resolve())));
  return { port: (server.server.address() as AddressInfo).port, mails };
}

/** The interval between questions of a process whether it is its turn, and between digests, in milliseconds. */
const INTERVAL_MS = 20;
const DAY_MS = 24 * 3_600_000;

/** E-mails digests until the end of the test. @returns ends them before */
function start(smtpUrl: string, { on = db, intervalMs = INTERVAL_MS } = {}): () => Promise<void> {
  const to = ["ops@example.com", "dev@example.com"];
  const end = startNoticeMails(on, { smtpUrl, from: "webhooks@example.com", to, intervalMs }, log);
  onTestFinished(end);
  return end;
}

const setting = async (name: string) => (await db("settings").where({ name }).pluck("value"))[0];

/** Waits until a digest has been kept, and the next turn is known. */
const kept = () => until(async () => (await setting("notice digest")) && (await turnIsOver()));
const turnIsOver = async () =>
  (
    await rows(
      db,
      "select from settings where name = 'notices e-mailed' and value::timestamptz < now() + interval '8 minutes'",
    )
  ).length > 0;

/** Makes the next turn due, and waits until it has been taken and is over. */
async function takeTurn(): Promise<void> {
  const [made] = await rows<{ due: string }>(
    db,
    "update settings set value = now()::text where name = 'notices e-mailed' returning value as due",
  );
  await until(async () => (await setting("notices e-mailed")) !== made?.due && (await turnIsOver()));
}

test("of several processes one e-mails each digest, though its server takes longer than the interval, and none without news", async () => {
  const [accepted, turns] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  let [mailsBegun, turnsSince] = [0, 0];
  const { port, mails } = await startSmtp({
    onMailFrom: (_, __, done) => {
      mailsBegun += 1;
      turnsSince = 0;
      void accepted.promise.then(() => done());
    },
  });
  const on: Db = observed(db, (sql) => {
    if (!sql.startsWith("insert into settings as s")) return;
    turnsSince += 1;
    if (mailsBegun > 0 && turnsSince > 3) turns.resolve();
  });
  await failing("shop");
  for (let n = 0; n < 3; n += 1) start(`smtp://localhost:${port}`, { on });
  // The other processes ask again and again.
  await turns.promise;
  accepted.resolve();
  await kept();
  for (let n = 0; n < 2; n += 1) await takeTurn();
  await failing("store");
  await until(() => mails.length > 1);
  expect(mails.map(({ text }) => /Subject: (.*)\r\n/.exec(text)?.[1])).toEqual([
    "Webhook service: 1 webhook failing",
    "Webhook service: 1 webhook failing",
  ]);
  expect(mails[1]?.text).toContain("Still failing:");
  // The server offers STARTTLS.
  const to = ["ops@example.com", "dev@example.com"];
  expect(mails[0]).toMatchObject({ from: "webhooks@example.com", to, secure: true });
});

test("a digest that was refused is part of the next one after five minutes, however long the interval is; a password is sent by TLS", async () => {
  let password = "other";
  const { port, mails } = await startSmtp({
    disabledCommands: [],
    onAuth: ({ username, password: given }, _, done) =>
      given === password ? done(null, { user: username }) : done(new Error("wrong password")),
  });
  await failing("shop");
  const again = () => start(`smtp://service:p%40ss@localhost:${port}`, { intervalMs: DAY_MS });
  const end = again();
  await until(turnIsOver);
  const msg = expect.stringContaining("e-mailing notices failed");
  expect(lines[0]).toMatchObject({ level: 40, msg, code: "EAUTH", retryInSeconds: 300 });
  await end();
  password = "p@ss";
  await db.raw(
    "update settings set value = (value::timestamptz - interval '5 minutes')::text where name = 'notices e-mailed'",
  );
  again();
  await until(() => mails.length === 1);
  expect(mails[0]).toMatchObject({ user: "service", secure: true });
  expect(mails[0]?.text).toContain("1 webhook failing");
  expect(JSON.stringify(lines)).not.toMatch(/p@ss|p%40ss/);
});

test("a digest is sent once, though the database is unavailable for a while after its server has accepted it", async () => {
  const refusals = 3;
  await db.raw(`create sequence tries;
    create function refuse() returns trigger language plpgsql as $$ begin
      if new.name = 'notice digest' and nextval('tries') <= ${refusals} then
        raise 'the database system is starting up' using errcode = '57P03';
      end if;
      return new;
    end $$;
    create trigger refuse before insert on settings for each row execute function refuse()`);
  onTestFinished(async () => {
    await db.raw("drop trigger refuse on settings; drop function refuse; drop sequence tries");
  });
  const { port, mails } = await startSmtp();
  await failing("shop");
  const ends = [1, 2].map(() => start(`smtp://localhost:${port}`));
  await kept();
  await Promise.all(ends.map((end) => end()));
  const [tries] = await rows<{ n: number }>(db, "select last_value::int as n from tries");
  expect(tries?.n).toBeGreaterThan(refusals);
  expect(mails).toHaveLength(1);
});

test("a recipient whom the server refuses is named in the log; the others get the digest once", async () => {
  const { port, mails } = await startSmtp({
    onRcptTo: ({ address }, _, done) =>
      done(address === "dev@example.com" ? new Error("no such mailbox") : null),
  });
  await failing("shop");
  start(`smtp://localhost:${port}`);
  await kept();
  expect(mails.map(({ to }) => to)).toEqual([["ops@example.com"]]);
  expect(lines[0]).toMatchObject({
    level: 40,
    msg: expect.stringContaining("without one of its recipients"),
    recipient: "dev@example.com",
    reason: expect.stringContaining("no such mailbox"),
  });
});

test("without STARTTLS, no password is sent; smtps uses TLS from the start", async () => {
  let asked = 0;
  const plain = await startSmtp({
    disabledCommands: ["STARTTLS"],
    allowInsecureAuth: true,
    onAuth: (_, __, done) => {
      asked += 1;
      done(null, { user: "any" });
    },
  });
  const { port, mails } = await startSmtp({ secure: true });
  await failing("shop");
  const end = start(`smtp://service:secret@localhost:${plain.port}`, { intervalMs: DAY_MS });
  await until(turnIsOver);
  await end();
  expect(lines[0]).toMatchObject({ code: "ETLS" });
  expect([asked, plain.mails.length]).toEqual([0, 0]);
  start(`smtps://localhost:${port}`);
  await takeTurn();
  expect(mails).toMatchObject([{ secure: true }]);
});
