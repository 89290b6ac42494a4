import pg from "pg";
import { describe, expect, test } from "vitest";
import { parseTarget } from "../../../src/lib/pg/target.ts";

/** What pg makes of each host of a URL: host, port, user, password, database. */
function read(url: string, writes = true) {
  return parseTarget(url, writes).hosts.map((each) => {
    const { host, port, user, password, database } = new pg.Client({ connectionString: each.url });
    expect([each.host, each.port]).toEqual([host, String(port)]);
    return `${host} ${port} ${user}:${password} ${database}`;
  });
}

function refusal(url: string, writes = true): string {
  try {
    parseTarget(url, writes);
  } catch (error) {
    return (error as Error).message;
  }
  throw new Error("the URL was taken");
}

test.each([
  ["postgres://u:p@db.example:6432/webhook", ["db.example 6432 u:p webhook"]],
  ["postgresql://u:p@db.example/webhook", ["db.example 5432 u:p webhook"]],
  // Several hosts, with a port for each, for some, or for all.
  ["postgres://u:p@h1:5433,h2:5434/w", ["h1 5433 u:p w", "h2 5434 u:p w"]],
  ["postgres://u:p@h1,h2:5434,h3/w", ["h1 5432 u:p w", "h2 5434 u:p w", "h3 5432 u:p w"]],
  ["postgres://u:p@h1,h2/w?port=6432", ["h1 6432 u:p w", "h2 6432 u:p w"]],
  ["postgres://u:p@/w?host=h1,h2&port=1,2", ["h1 1 u:p w", "h2 2 u:p w"]],
  ["postgres://u:p@/w?host=h1,h2", ["h1 5432 u:p w", "h2 5432 u:p w"]],
  ["postgres://u:p@[::1]:5433,[fd00::2]/w", ["::1 5433 u:p w", "fd00::2 5432 u:p w"]],
  ["postgres://u:p@[::1]/w", ["::1 5432 u:p w"]],
  // Sockets.
  ["postgres://u:p@/w?host=/var/run/postgresql", ["/var/run/postgresql 5432 u:p w"]],
  ["postgresql:///w?host=/tmp&user=u&password=p&port=5433", ["/tmp 5433 u:p w"]],
  ["postgres://u:p@localhost:5433/w?host=/var/run/postgresql", ["/var/run/postgresql 5433 u:p w"]],
  ["postgres://u:p@%2Fvar%2Frun%2Fpostgresql/w", ["/var/run/postgresql 5432 u:p w"]],
  ["postgres://u:p@%2Fvar%2Frun%2Fpostgresql:5433/w", ["/var/run/postgresql 5433 u:p w"]],
  [
    "postgres://u:p@/w?host=/var/run/postgresql,db.example",
    ["/var/run/postgresql 5432 u:p w", "db.example 5432 u:p w"],
  ],
  // No host.
  ["postgres://u:p@/w", ["localhost 5432 u:p w"]],
  ["postgresql:///w?user=u&password=p", ["localhost 5432 u:p w"]],
  ["postgres://u:p@:5433/w", ["localhost 5433 u:p w"]],
  // The rest of the URL.
  ["postgres://u:p%40s%2Cs%2F@h1,h2/w", ["h1 5432 u:p@s,s/ w", "h2 5432 u:p@s,s/ w"]],
  ["postgres://u:p@s@h1/w", ["h1 5432 u:p@s w"]],
  ["postgres://u:p@h1/ignored?dbname=w", ["h1 5432 u:p w"]],
  ["postgres://u:p@h1?dbname=w", ["h1 5432 u:p w"]],
])("%s leads to %j", (url, hosts) => {
  expect(read(url)).toEqual(hosts);
});

test("other parameters reach pg, and sockets use no TLS", () => {
  const url =
    "postgres://u:p@h1/w?application_name=a%20b&sslmode=no-verify&host=h1,/tmp&options=-c%20jit%3Doff";
  const [tcp, socket] = parseTarget(url, true).hosts.map(
    (each) => new pg.Client({ connectionString: each.url }),
  );
  expect(tcp).toMatchObject({
    ssl: { rejectUnauthorized: false },
    connectionParameters: { application_name: "a b", options: "-c jit=off" },
  });
  expect(socket?.ssl).toBe(false);
});

test.each([
  ["", true, "primary"],
  ["target_session_attrs=any", true, "primary"],
  ["target_session_attrs=primary", true, "primary"],
  ["target_session_attrs=read-write", true, "read-write"],
  ["", false, "any"],
  ["target_session_attrs=prefer-standby", false, "prefer-standby"],
  ["target_session_attrs=standby", false, "standby"],
  ["target_session_attrs=read-only", false, "read-only"],
])(
  "'%s' in a URL of a database that is written to: %s, asks for a session of the kind %s",
  (query, writes, session) => {
    expect(parseTarget(`postgres://h1,h2/w?${query}`, writes).session).toBe(session);
  },
);

test("load_balance_hosts and connect_timeout are read as in libpq", () => {
  const of = (query: string) => parseTarget(`postgres://h1,h2/w?${query}`, true);
  expect(of("")).toMatchObject({ isRandom: false, timeoutMs: undefined });
  expect(of("load_balance_hosts=disable&connect_timeout=0")).toMatchObject({
    isRandom: false,
    timeoutMs: undefined,
  });
  expect(of("load_balance_hosts=random&connect_timeout=1")).toMatchObject({
    isRandom: true,
    timeoutMs: 2_000,
  });
  expect(of("connect_timeout=9")).toMatchObject({ timeoutMs: 9_000 });
});

describe("the error says what to write instead, and repeats no part of the URL:", () => {
  test.each([
    [
      "host=h1 dbname=secret",
      /not a PostgreSQL URL; write it like postgres:\/\/user:password@host:5432\/database/,
    ],
    ["mysql://u:secret@h/w", /not a PostgreSQL URL/],
    ["postgres://u:secret@h1,/w", /with several hosts like postgres:\/\/.*@host1:5432,host2:5432/],
    ["postgres://u:sec/ret@h1/w", /encode special characters/],
    ["postgres://u:secret@h1:99999/w", /not a PostgreSQL URL/],
    ["postgres://u:secret@h1:0/w", /not a PostgreSQL URL/],
    ["postgres://u:secret@[::1/w", /not a PostgreSQL URL/],
    ["postgres://u:secret@h%zz/w", /not a PostgreSQL URL/],
    ["postgres://u:secret@/w?host=var/run", /with a socket like .*\?host=\/var\/run\/postgresql/],
    [
      "postgres://u:secret@h1,h2,h3/w?port=1,2",
      /3 hosts and 2 ports; write one port for all hosts, or one for each/,
    ],
    [
      "postgres://u:secret@h1/w?target_session_attrs=standby",
      /allowed: any, primary, read-write; .*DATABASE_READ_URL/,
    ],
    ["postgres://u:secret@h1/w?target_session_attrs=read-only", /allowed: any, primary, read-write/],
    ["postgres://u:secret@h1/w?target_session_attrs=writable", /allowed: any, primary, read-write/],
    ["postgres://u:secret@h1/w?load_balance_hosts=yes", /allowed: disable, random/],
    ["postgres://u:secret@h1/w?connect_timeout=5s", /write whole seconds, such as connect_timeout=5/],
    [
      "postgres://u:secret@/w?hostaddr=10.0.0.1",
      /hostaddr, which is not supported; write the addresses as hosts/,
    ],
    ["postgres://u:secret@h1/w?service=main", /service, which is not supported; write .* into the URL/],
  ])("%s", (url, message) => {
    const said = refusal(url);
    expect(said).toMatch(message);
    expect(said).not.toMatch(/secret|sec\/ret/);
  });

  test("the URL of a replica has a kind that does not exist", () => {
    expect(refusal("postgres://h1/w?target_session_attrs=replica", false)).toMatch(
      /allowed: any, primary, read-write, standby, read-only, prefer-standby$/,
    );
  });
});
