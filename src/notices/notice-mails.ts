import { setTimeout as wait } from "node:timers/promises";
import { createTransport } from "nodemailer";
import type { Logger } from "pino";
import type { NoticeMailConfig } from "../config/index.ts";
import { type Db, isTransient, untilAnswered } from "../lib/pg/index.ts";
import { setNextTurn, takeTurn } from "../schema/index.ts";
import { digestMail } from "./digest-mail.ts";
import { keepNoticeDigest, readNoticeDigest } from "./notice-digest.ts";

/** The maximum time between questions whether it is this process's turn, in milliseconds. */
const MAX_PAUSE_MS = 30_000;
/** The name of the turn to send a digest. */
const TURN = "notices e-mailed";
/** The time reserved for sending a mail, in seconds: no other process sends one meanwhile. */
const MAX_SENDING_S = 600;
/** The delay before another attempt to send a digest, in seconds, unless the interval is shorter. */
const RETRY_S = 300;
/** The maximum time to wait for a mail that is being sent when the service stops, in milliseconds. */
const MAX_STOP_MS = 3_000;
/** The timeout of connecting to the SMTP server, and of its greeting, in milliseconds. */
const CONNECT_TIMEOUT_MS = 10_000;
/** The time without a byte after which a connection to the SMTP server is closed, in milliseconds. */
const IDLE_TIMEOUT_MS = 30_000;

/**
 * E-mails a digest of notices, at most once per interval over all processes. A digest that could not be sent is part of
 * the next one, which is sent sooner. A digest is sent again only if the process ends, or another one takes its turn, before the
 * database has stored that it was sent.
 *
 * @returns stops it. Waits up to 3 s for a mail that is being sent
 */
export function startNoticeMails(
  db: Db,
  { smtpUrl, from, to, intervalMs }: NoticeMailConfig,
  log: Logger,
): () => Promise<void> {
  const stopping = new AbortController();
  const transport = createTransport(smtpOptions(smtpUrl));

  const everyS = Math.ceil(intervalMs / 1_000);
  const retryS = Math.min(everyS, RETRY_S);

  /** Returns false if the mail could not be sent. */
  async function sendDigest(): Promise<boolean> {
    const digest = await readNoticeDigest(db);
    const mail = digestMail(digest);
    if (mail) {
      try {
        const message = { ...mail, from, to, disableFileAccess: true, disableUrlAccess: true };
        const { rejectedErrors = [] } = await transport.sendMail(message);
        for (const { recipient, message: reason } of rejectedErrors)
          log.warn(
            { recipient, reason },
            "an e-mail of notices was sent without one of its recipients, whom the SMTP server refused; check NOTICE_EMAILS",
          );
      } catch (error) {
        const { code, message } = error as { code?: string; message: string };
        log.warn(
          { code, reason: message, retryInSeconds: retryS },
          "e-mailing notices failed; check SMTP_URL, SMTP_FROM and NOTICE_EMAILS",
        );
        return false;
      }
      log.info({ subject: mail.subject, recipients: to.length }, "notices e-mailed");
    }
    // Until it is stored: otherwise the next digest would contain the same again.
    await untilAnswered(() => keepNoticeDigest(db, digest), { signal: stopping.signal });
    return true;
  }

  async function round(): Promise<void> {
    if (!(await takeTurn(db, TURN, Math.max(everyS, MAX_SENDING_S)))) return;
    let nextS = retryS;
    try {
      if (await sendDigest()) nextS = everyS;
    } finally {
      await setNextTurn(db, TURN, nextS);
    }
  }

  async function run(): Promise<void> {
    while (!stopping.signal.aborted) {
      try {
        await round();
      } catch (err) {
        // While the database is unavailable, other parts log it.
        if (!isTransient(err) && !stopping.signal.aborted)
          log.error({ err }, "e-mailing notices failed; retrying");
      }
      await wait(Math.min(intervalMs, MAX_PAUSE_MS), undefined, {
        signal: stopping.signal,
        ref: false,
      }).catch(() => {});
    }
  }

  const running = run();
  return async () => {
    stopping.abort();
    const stopped = wait(MAX_STOP_MS, undefined, { ref: false });
    await Promise.race([running, stopped]);
    transport.close();
  };
}

/** With a password, TLS is required: `smtps:` from the start, or STARTTLS. Certificates are verified. */
function smtpOptions(smtpUrl: string) {
  const { protocol, hostname, port, username, password } = new URL(smtpUrl);
  const secure = protocol === "smtps:";
  return {
    host: hostname.replace(/^\[(.*)\]$/, "$1"),
    port: port === "" ? (secure ? 465 : 587) : Number(port),
    secure,
    requireTLS: !secure && username !== "",
    // Whatever NODE_TLS_REJECT_UNAUTHORIZED says.
    tls: { rejectUnauthorized: true },
    ...(username === ""
      ? {}
      : { auth: { user: decodeURIComponent(username), pass: decodeURIComponent(password) } }),
    connectionTimeout: CONNECT_TIMEOUT_MS,
    greetingTimeout: CONNECT_TIMEOUT_MS,
    socketTimeout: IDLE_TIMEOUT_MS,
  };
}
