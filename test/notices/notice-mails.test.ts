import type { AddressInfo } from "node:net";
import pino from "pino";
import { SMTPServer, type SMTPServerOptions } from "smtp-server";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { rows } from "../../src/db/database.ts";
import { deleteOldRollups } from "../../src/db/deliveries/rollups.ts";
import { type NoticeDigest, readNoticeDigest } from "../../src/db/webhooks/notice-digest.ts";
import { forgetHealthy } from "../../src/db/webhooks/webhook-health.ts";
import { digestMail } from "../../src/notices/digest-mail.ts";
import { startNoticeMails } from "../../src/notices/notice-mails.ts";
import { openQueueDatabase, queueMany } from "../db/queue/queue.ts";
import { observed } from "../delivery/engine-parts.ts";
import { trustedAuthority } from "../support/test-service.ts";

vi.setConfig({ testTimeout: 60_000 });

/** How long a test waits for what comes within seconds, on a busy machine too, in milliseconds. */
const PATIENCE_MS = 30_000;

const db = await openQueueDatabase();
let lines: Record<string, unknown>[] = [];
const log = pino({ base: null }, { write: (line: string) => void lines.push(JSON.parse(line)) });
const ends: (() => Promise<unknown>)[] = [];
beforeEach(async () => {
  lines = [];
  await db.raw("delete from settings where name in ('notice digest', 'notices e-mailed')");
});
afterEach(async () => {
  for (const end of ends.splice(0).reverse()) await end();
});

interface Received {
  from: string;
  to: string[];
  text: string;
  user: unknown;
  secure: boolean;
}

/** A real SMTP server; answers its port and what it has accepted. */
async function startSmtp(options: SMTPServerOptions = {}): Promise<{ port: number; mails: Received[] }> {
  const mails: Received[] = [];
  const certificate = await (await trustedAuthority()).issue(["localhost"]);
  const server = new SMTPServer({
    ...certificate,
    disabledCommands: ["AUTH"],
    onData(stream, { envelope, user, secure }, done) {
      const chunks: Buffer[] = [];
      stream.on("data", (chunk: Buffer) => chunks.push(chunk));
      stream.on("end", () => {
        const from = envelope.mailFrom === false ? "" : envelope.mailFrom.address;
        const to = envelope.rcptTo.map(({ address }) => address);
        mails.push({ from, to, text: decoded(Buffer.concat(chunks).toString()), user, secure });
        done();
      });
    },
    ...options,
  });
  // A client that refuses to go on is an error of its connection.
  server.on("error", () => {});
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  ends.push(() => new Promise<void>((resolve) => server.close(() => resolve())));
  return { port: (server.server.address() as AddressInfo).port, mails };
}

/** A message whose quoted-printable lines are joined. */
const decoded = (message: string) =>
  message
    .replaceAll("=\r\n", "")
    .replaceAll(/=([0-9A-F]{2})/g, (_, code) => String.fromCharCode(Number.parseInt(code, 16)));

function start(smtpUrl: string, processes = 1, { on = db, intervalMs = 1_000 } = {}): void {
  const config = {
    smtpUrl,
    from: "webhooks@example.com",
    to: ["ops@example.com", "dev@example.com"],
    intervalMs,
  };
  for (let n = 0; n < processes; n += 1) ends.push(startNoticeMails(on, config, log));
}

/** A webhook with this health, as folding statistics stores it. */
async function failing(name: string): Promise<bigint> {
  const [id] = await queueMany(db, {
    urlPrefix: `https://${name}.example/?token=s3cret-`,
    webhooks: 1,
    events: 0,
  });
  await db.raw("update webhooks set name = ? where id = ?", [name, String(id)]);
  await db.raw(
    `insert into webhook_health (webhook_id, health, since, last_failure, last_error)
      values (?, 'failing', now(), now(), 'HTTP status 503')`,
    [String(id)],
  );
  return id as bigint;
}

/** The webhooks that the latest digest reported as failing. */
const reported = async () =>
  (
    await rows<{ failing: string[] }>(
      db,
      "select value::json->'failing' as failing from settings where name = 'notice digest'",
    )
  )[0]?.failing;

test("of several processes one e-mails each digest: what fails, what has recovered, and nothing without news", async () => {
  const { port, mails } = await startSmtp();
  const [shop, store] = [await failing("shop"), await failing("store")];
  start(`smtp://localhost:${port}`, 3);
  await expect.poll(() => mails.length, { timeout: PATIENCE_MS }).toBe(1);
  const [first] = mails;
  expect(first).toMatchObject({
    from: "webhooks@example.com",
    to: ["ops@example.com", "dev@example.com"],
    // The server offers STARTTLS.
    secure: true,
  });
  expect(first?.text).toContain("Subject: Webhook service: 2 webhooks failing");
  expect(first?.text).toMatch(
    new RegExp(`webhook ${shop} "shop", shop\\.example: since .* UTC; last error: HTTP status 503`),
  );
  expect(first?.text).toContain(`webhook ${store} "store"`);
  expect(first?.text).not.toContain("s3cret");

  // The turns of two more intervals pass.
  const turn = async () =>
    (await rows<{ value: string }>(db, "select value from settings where name = 'notices e-mailed'"))[0]
      ?.value;
  for (let n = 0; n < 2; n += 1) {
    const before = await turn();
    await expect.poll(turn, { timeout: PATIENCE_MS }).not.toBe(before);
  }
  expect(mails).toHaveLength(1);

  await db.raw(
    `insert into rollup_minutes
        (webhook_id, start, attempts, failed_attempts, delivered, failed, cancelled, total_ms, longest_ms, latency)
      values (?, date_trunc('minute', now()), 2, 1, 1, 0, 0, 0, 0, '{}')`,
    [String(shop)],
  );
  await db.raw("delete from webhook_health where webhook_id = ?", [String(shop)]);
  await expect.poll(() => mails.length, { timeout: PATIENCE_MS }).toBe(2);
  expect(mails[1]?.text).toContain("Subject: Webhook service: 1 webhook recovered");
  expect(mails[1]?.text).toMatch(new RegExp(`Recovered:\r\n- webhook ${shop} `));
  expect(mails[1]?.text).toMatch(new RegExp(`Still failing:\r\n- webhook ${store} `));
});

test("a webhook that answered until it began to fail, and that nothing was sent to for an hour, has not recovered", async () => {
  const { port, mails } = await startSmtp();
  const webhook = String(await failing("shop"));
  await db.raw(
    `insert into rollup_minutes
        (webhook_id, start, attempts, failed_attempts, delivered, failed, cancelled, total_ms, longest_ms, latency)
      select ?, date_trunc('minute', now()) - interval '1 minute' * n, 2, 2 - n, n, 0, 0, 0, 0, '{}'
      from generate_series(0, 1) n`,
    [webhook],
  );
  start(`smtp://localhost:${port}`);
  await expect.poll(reported, { timeout: PATIENCE_MS }).toEqual([webhook]);
  expect(mails).toHaveLength(1);
  await db.raw("update webhook_health set last_failure = now() - interval '61 minutes'");
  expect(await forgetHealthy(db)).toBe(1);
  await expect.poll(reported, { timeout: PATIENCE_MS }).toEqual([]);
  expect(mails).toHaveLength(1);
});

test("failed deliveries are counted per webhook since the latest digest, and disabled webhooks have their reason", async () => {
  const { port, mails } = await startSmtp();
  const [id] = await queueMany(db, { urlPrefix: "https://shop.example/", webhooks: 1, events: 0 });
  const webhook = String(id);
  await db.raw(
    `insert into rollup_minutes (webhook_id, start, attempts, delivered, failed, cancelled, total_ms, longest_ms, latency)
      select ?::bigint, date_trunc('minute', now()) - interval '1 minute' * n, 0, 0, n, 0, 0, 0, '{}'
      from generate_series(2, 4) n`,
    [webhook],
  );
  // The latest digest reported up to three minutes ago.
  await db.raw(
    `insert into settings (name, value) select 'notice digest',
      json_build_object('failing', '[]'::json, 'disabled', '[]'::json, 'until', date_trunc('minute', now()) - interval '3 minutes')`,
  );
  await db.raw(
    `insert into webhook_breakers
        (webhook_id, max_failures, failing_s, probe_s, disable_s, disable_on_gone, resend, state, reason)
      values (?, 10, 1800, 60, 432000, true, false, 'disabled', 'the endpoint answered 410 Gone')`,
    [webhook],
  );
  await db.raw("update webhooks set paused = now() where id = ?", [webhook]);
  start(`smtp://localhost:${port}`);
  await expect.poll(() => mails.length, { timeout: PATIENCE_MS }).toBe(1);
  const text = mails[0]?.text ?? "";
  expect(text).toMatch(/Subject: Webhook service: 1 webhook disabled, [25] deliveries failed/);
  expect(text).toContain("; the endpoint answered 410 Gone");
  expect(text).toMatch(new RegExp(`webhook ${id}, shop.example: [25]\r\n`));
});

test("failed deliveries and recovered webhooks are reported for the whole time since the latest digest, however long", async () => {
  const made = await queueMany(db, { urlPrefix: "https://shop.example/", webhooks: 2, events: 0 });
  const [recovered, quiet] = made.map(String);
  const hoursAgo = (unit: "hour" | "minute") => `date_trunc('${unit}', now() - make_interval(hours => h))`;
  for (const unit of ["minute", "hour"] as const) {
    await db.raw(
      `insert into rollup_${unit}s
          (webhook_id, start, attempts, failed_attempts, delivered, failed, cancelled, total_ms, longest_ms, latency)
        select id, ${hoursAgo(unit)}, 2, failed, 2 - failed, failed, 0, 0, 0, '{}'
        from (values (?::bigint, 62, 1), (?, 40, 1), (?, 2, 1), (?, 60, 1), (?, 40, 2)) v(id, h, failed)`,
      [recovered, recovered, recovered, quiet, quiet] as string[],
    );
  }
  await db.raw(
    `insert into settings (name, value) select 'notice digest', json_build_object('failing', ?::json,
      'disabled', '[]'::json, 'until', date_trunc('minute', now() - interval '60 hours'))`,
    [JSON.stringify([recovered, quiet])],
  );
  await deleteOldRollups(db, new Date(0));
  const digest = await readNoticeDigest(db);
  expect(digest.failed.map(({ id, deliveries }) => [String(id), deliveries])).toEqual([
    [quiet, 3],
    [recovered, 2],
  ]);
  expect(digest.recovered.map(({ id }) => String(id))).toEqual([recovered]);
  // Its minutes are gone, so the hour of the latest digest is counted from its beginning.
  const [hour] = await rows(db, "select date_trunc('hour', now() - interval '60 hours') as start");
  expect(hour).toEqual({ start: digest.from });
});

test("a password is sent over TLS only; a digest that was refused is part of the next one", async () => {
  let password = "other";
  const { port, mails } = await startSmtp({
    disabledCommands: [],
    onAuth: ({ username, password: given }, _, done) =>
      given === password ? done(null, { user: username }) : done(new Error("wrong password")),
  });
  await failing("shop");
  start(`smtp://service:p%40ss@localhost:${port}`);
  await expect.poll(() => lines.length, { timeout: PATIENCE_MS }).toBeGreaterThan(0);
  expect(lines[0]).toMatchObject({
    level: 40,
    msg: expect.stringContaining("e-mailing notices failed"),
    code: "EAUTH",
  });
  password = "p@ss";
  await expect.poll(() => mails.length, { timeout: PATIENCE_MS }).toBe(1);
  expect(mails[0]).toMatchObject({ user: "service", secure: true });
  expect(mails[0]?.text).toContain("1 webhook failing");
  expect(JSON.stringify(lines)).not.toMatch(/p@ss|p%40ss/);
});

test("a digest that was refused is sent again after minutes, however long the interval is", async () => {
  const { port } = await startSmtp({ onMailFrom: (_, __, done) => done(new Error("try later")) });
  await failing("shop");
  start(`smtp://localhost:${port}`, 1, { intervalMs: 24 * 3_600_000 });
  await expect.poll(() => lines.length, { timeout: PATIENCE_MS }).toBe(1);
  expect(lines[0]).toMatchObject({ reason: expect.stringContaining("try later"), retryInSeconds: 300 });
  await ends.pop()?.();
  await db.raw(
    "update settings set value = (value::timestamptz - interval '5 minutes')::text where name = 'notices e-mailed'",
  );
  const other = await startSmtp();
  start(`smtp://localhost:${other.port}`, 1, { intervalMs: 24 * 3_600_000 });
  await expect.poll(() => other.mails.length, { timeout: PATIENCE_MS }).toBe(1);
});

test("a digest is sent once, though its server takes longer than the interval to accept it", async () => {
  let begun = 0;
  const accepted = Promise.withResolvers<void>();
  const { port } = await startSmtp({
    onData(stream, _, done) {
      begun += 1;
      stream.resume().on("end", () => void accepted.promise.then(() => done()));
    },
  });
  let turns = 0;
  const on = observed(db, (sql) => {
    if (sql.startsWith("insert into settings as s")) turns += 1;
  });
  await failing("shop");
  start(`smtp://localhost:${port}`, 2, { on });
  await expect.poll(() => begun, { timeout: PATIENCE_MS }).toBe(1);
  // The other process asks once a second.
  turns = 0;
  await expect.poll(() => turns, { timeout: PATIENCE_MS }).toBe(3);
  accepted.resolve();
  await expect.poll(reported, { timeout: PATIENCE_MS }).toHaveLength(1);
  expect(begun).toBe(1);
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
  ends.push(() => db.raw("drop trigger refuse on settings; drop function refuse; drop sequence tries"));
  const { port, mails } = await startSmtp();
  await failing("shop");
  start(`smtp://localhost:${port}`, 2);
  await expect.poll(reported, { timeout: PATIENCE_MS }).toHaveLength(1);
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
  await expect.poll(reported, { timeout: PATIENCE_MS }).toHaveLength(1);
  expect(mails.map(({ to }) => to)).toEqual([["ops@example.com"]]);
  expect(lines[0]).toMatchObject({
    level: 40,
    msg: expect.stringContaining("without one of its recipients"),
    recipient: "dev@example.com",
    reason: expect.stringContaining("no such mailbox"),
  });
});

test("without STARTTLS, no password is sent", async () => {
  let asked = 0;
  const { port, mails } = await startSmtp({
    disabledCommands: ["STARTTLS"],
    allowInsecureAuth: true,
    onAuth: (_, __, done) => {
      asked += 1;
      done(null, { user: "any" });
    },
  });
  await failing("shop");
  start(`smtp://service:secret@localhost:${port}`);
  await expect.poll(() => lines.length, { timeout: PATIENCE_MS }).toBeGreaterThan(0);
  expect(lines[0]).toMatchObject({ code: "ETLS" });
  expect([asked, mails.length]).toEqual([0, 0]);
});

test("smtps uses TLS from the start", async () => {
  const { port, mails } = await startSmtp({ secure: true });
  await failing("shop");
  start(`smtps://localhost:${port}`);
  await expect.poll(() => mails.length, { timeout: PATIENCE_MS }).toBe(1);
  expect(mails[0]?.secure).toBe(true);
});

test("texts of others stay on their line, and long lists end with a count", () => {
  const date = new Date("2026-11-21T09:30:00Z");
  const webhook = { id: 1n, name: "a\r\nb\u2028c", targetUrl: "https://shop.example/x", appName: "App\n1" };
  const digest: NoticeDigest = {
    failing: Array.from({ length: 52 }, () => ({
      ...webhook,
      since: date,
      lastError: "x".repeat(500),
      isNew: true,
    })),
    disabled: [],
    recovered: [],
    failed: [],
    from: date,
    until: date,
    state: "",
  };
  const mail = digestMail(digest);
  const [title, line, ...rest] = mail?.text.trimEnd().split("\n") ?? [];
  expect(title).toBe("Failing now:");
  expect(line).toMatch(
    /^- webhook 1 "a b c" of App 1, shop\.example: since 2026-11-21 09:30 UTC; last error: x{199}…$/,
  );
  expect(rest.at(-1)).toBe("- and 2 more");
  expect(rest).toHaveLength(50);
  expect(digestMail({ ...digest, failing: [] })).toBeUndefined();
});
