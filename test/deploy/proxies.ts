import { once } from "node:events";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import { createLocalAuthority } from "../../demo/certificates.ts";
import { read } from "../repository/project.ts";
import { anyPort } from "../support/any-port.ts";
import { startProgram } from "../support/program.ts";
import { eventually } from "../support/wait.ts";

/** The proxies of docs/proxies.md. */
export const PROXIES = ["nginx", "haproxy", "caddy"] as const;
export type ProxyName = (typeof PROXIES)[number];

/** How a proxy passes the prefix on. */
export type PrefixMode = "keeps" | "removes";

/** What docs/proxies.md changes in each file to remove the prefix. */
const TO_REMOVE: Record<ProxyName, [string, string]> = {
  nginx: ["proxy_pass http://127.0.0.1:8080;", "proxy_pass http://127.0.0.1:8080/;"],
  haproxy: ["# http-request replace-path", "http-request replace-path"],
  caddy: ["handle /webhooks/*", "handle_path /webhooks/*"],
};

/** The proxy's file in docs/proxies.md. */
function documented(name: ProxyName, mode: PrefixMode): string {
  const [, file] =
    new RegExp(`^\`\`\`${name}\n([\\s\\S]*?)^\`\`\`$`, "m").exec(read("docs/proxies.md")) ?? [];
  if (file === undefined) throw new Error(`docs/proxies.md has no file of ${name}`);
  return mode === "keeps" ? file : replaced(file, ...TO_REMOVE[name]);
}

/** The text with all occurrences of a part replaced, of which there must be some. */
function replaced(text: string, from: string, to: string): string {
  if (!text.includes(from)) throw new Error(`"${from}" is not in:\n${text}`);
  return text.replaceAll(from, to);
}

/** Where the proxy and the service listen, on 127.0.0.1. */
interface Ports {
  https: number;
  grpcs: number;
  http: number;
  grpc: number;
}

/** The file with other ports, and what an installation has around it; the command that runs it. */
function setUp(
  name: ProxyName,
  file: string,
  { https, grpcs, http, grpc }: Ports,
  folder: string,
): { files: Record<string, string>; command: string[]; environment: Record<string, string> } {
  const asRoot = process.getuid?.() === 0;
  const forService = replaced(
    replaced(file, "127.0.0.1:8080", `127.0.0.1:${http}`),
    "127.0.0.1:9090",
    `127.0.0.1:${grpc}`,
  );
  const local = forService.replaceAll("/etc/ssl/", `${folder}/`);
  switch (name) {
    case "nginx": {
      const temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"].map(
        (kind) => `  ${kind}_temp_path ${folder}/${kind};\n`,
      );
      const servers = replaced(
        replaced(local, "listen 443 ", `listen 127.0.0.1:${https} `),
        "listen 9443 ",
        `listen 127.0.0.1:${grpcs} `,
      );
      const main = `daemon off;\npid ${folder}/pid;\nerror_log stderr;\n${asRoot ? "user root;\n" : ""}events {}\n`;
      return {
        files: { "nginx.conf": `${main}http {\n  access_log off;\n${temporary.join("")}${servers}}\n` },
        command: ["nginx", "-p", folder, "-e", "stderr", "-c", `${folder}/nginx.conf`],
        environment: {},
      };
    }
    case "haproxy":
      return {
        files: {
          "haproxy.cfg": replaced(
            replaced(local, "bind :443 ", `bind 127.0.0.1:${https} `),
            "bind :9443 ",
            `bind 127.0.0.1:${grpcs} `,
          ),
        },
        command: ["haproxy", "-db", "-f", `${folder}/haproxy.cfg`],
        environment: {},
      };
    case "caddy": {
      const tls = `{\n\ttls ${folder}/hooks.pem ${folder}/hooks.key\n`;
      const sites = replaced(
        replaced(local, "hooks.example:9443 {\n", `hooks.example:${grpcs} ${tls}`),
        "hooks.example {\n",
        `hooks.example:${https} ${tls}`,
      );
      return {
        files: { Caddyfile: `{\n\tadmin off\n\tauto_https disable_redirects\n}\n${sites}` },
        command: ["caddy", "run", "--adapter", "caddyfile", "--config", `${folder}/Caddyfile`],
        environment: { HOME: folder, XDG_DATA_HOME: folder, XDG_CONFIG_HOME: folder },
      };
    }
  }
}

/** A running proxy in front of a service. */
export type DocumentedProxy = Awaited<ReturnType<typeof startDocumentedProxy>>;

/**
 * Starts a proxy with its file of docs/proxies.md, and waits until it accepts connections.
 *
 * @param change further changes of the file
 */
export async function startDocumentedProxy(
  name: ProxyName,
  mode: PrefixMode,
  service: { httpPort: number; grpcPort: number | null },
  change: (file: string) => string = (file) => file,
) {
  const folder = await mkdtemp(path.join(tmpdir(), `webhook-test-${name}-`));
  const ports = {
    https: await anyPort(),
    grpcs: await anyPort(),
    http: service.httpPort,
    grpc: service.grpcPort as number,
  };
  const authority = await createLocalAuthority();
  const { cert, key } = await authority.issue(["hooks.example", "localhost"]);
  const { files, command, environment } = setUp(name, change(documented(name, mode)), ports, folder);
  const certificates = { "hooks.pem": cert, "hooks.key": key, "hooks-and-key.pem": `${cert}\n${key}` };
  for (const [file, text] of Object.entries({ ...files, ...certificates }))
    await writeFile(path.join(folder, file), text);
  const program = startProgram(command, { environment, cwd: folder });
  const stop = async () => {
    await program.end("SIGTERM");
    await rm(folder, { recursive: true, force: true });
  };
  try {
    for (const port of [ports.https, ports.grpcs])
      await eventually(async () => {
        if (program.process.exitCode !== null) return;
        const socket = connect(port, "127.0.0.1");
        await once(socket, "connect");
        socket.destroy();
      });
    if (program.process.exitCode !== null) throw new Error(`it ended with ${program.process.exitCode}`);
  } catch (error) {
    await stop();
    throw new Error(`${name} did not start: ${program.printed()}`, { cause: error });
  }
  return { httpsPort: ports.https, grpcsPort: ports.grpcs, ca: authority.cert, stop };
}
