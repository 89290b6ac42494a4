/**
 * Has curl, Python's requests and Go's net/http get each of the odd answers, and writes what they say to odd-answers.json. Keeps what the
 * file says of this service (`ours`, `why`); a new answer needs these by hand.
 *
 *     pip install requests && node test/delivery/request/ask-other-clients.ts
 */
import { execFile } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import { promisify } from "node:util";
import { createLocalAuthority } from "../../../demo/certificates.ts";
import { answering, ODD_ANSWERS } from "./odd-answers.ts";

const run = promisify(execFile);
const AT_ONCE = 10;

/** Prints a line of JSON for each port: the status or the error, and the error of the body if there is one. */
const PYTHON = `
import concurrent.futures, json, sys, requests, urllib3
urllib3.disable_warnings()
def ask(port):
    said = {}
    try:
        with requests.post(f"https://localhost:{port}", data="{}", verify=False, timeout=3, allow_redirects=False, stream=True) as answer:
            said["status"] = answer.status_code
            answer.content
    except Exception as error:
        said["error"] = type(error).__name__
    return json.dumps(said)
with concurrent.futures.ThreadPoolExecutor(10) as pool:
    for line in pool.map(ask, sys.argv[1:]):
        print(line)
`;

const GO = `package main

import ("crypto/tls"; "encoding/json"; "fmt"; "io"; "net/http"; "os"; "strings"; "sync"; "time")

var transport = &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
var client = &http.Client{Timeout: 3 * time.Second, Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}

func ask(port string) string {
	said := map[string]any{}
	answer, err := client.Post("https://localhost:"+port, "application/json", strings.NewReader("{}"))
	if err == nil {
		said["status"] = answer.StatusCode
		if answer.StatusCode != 101 {
			_, err = io.ReadAll(answer.Body)
		}
		answer.Body.Close()
	}
	if err != nil {
		said["error"] = err.Error()
	}
	line, _ := json.Marshal(said)
	return string(line)
}

func main() {
	lines := make([]string, len(os.Args)-1)
	var all sync.WaitGroup
	atOnce := make(chan bool, 10)
	for index, port := range os.Args[1:] {
		all.Add(1)
		go func() {
			atOnce <- true
			lines[index] = ask(port)
			<-atOnce
			all.Done()
		}()
	}
	all.Wait()
	fmt.Println(strings.Join(lines, "\\n"))
}
`;

/** What a client says: its status, `200`; its status and the error of the body, `200, then IncompleteRead`; or its error. */
const inWords = ({ status, error }: { status?: number; error?: string }) => {
  const words = error
    ?.replace(/^.*localhost:\d+":? ?/, "")
    .replace(/^net\/http: HTTP\/1.x transport connection broken: /, "")
    .slice(0, 80);
  return [...(status ? [status] : []), ...(words ? [words] : [])].join(", then ");
};

async function curl(port: number) {
  const options = ["-sSk", "--http1.1", "-m", "3", "-o", "/dev/null", "-w", "%{http_code} %{exitcode}"];
  const url = `https://localhost:${port}`;
  const { stdout } = await run("curl", [...options, "-d", "{}", url]).catch(
    (error) => error as { stdout: string },
  );
  const [status = "", exit] = stdout.split(" ");
  return inWords({ status: Number(status), ...(exit === "0" ? {} : { error: `exit status ${exit}` }) });
}

const TABLE = path.join(import.meta.dirname, "odd-answers.json");
const before: Record<string, { ours: number | null; why?: string }> = existsSync(TABLE)
  ? JSON.parse(readFileSync(TABLE, "utf8")).answers
  : {};
const folder = mkdtempSync(path.join(tmpdir(), "odd-answers-"));
const lines = (output: string) => output.trim().split("\n");
const inEnglish = (output: string) => lines(output).map((line) => inWords(JSON.parse(line)));
const certificate = await (await createLocalAuthority()).issue(["localhost"]);
const servers = ODD_ANSWERS.map((answer) =>
  answering(certificate, answer)
    .on("tlsClientError", () => {})
    .listen(0, "127.0.0.1"),
);
await Promise.all(servers.map((server) => once(server, "listening")));
const ports = servers.map((server) => (server.address() as AddressInfo).port);
try {
  writeFileSync(path.join(folder, "ask.py"), PYTHON);
  writeFileSync(path.join(folder, "ask.go"), GO);
  const asked = (command: string, ...parts: string[]) =>
    run(command, [...parts, ...ports.map(String)], { cwd: folder, maxBuffer: 1e8 });
  const version = async (command: string, ...parts: string[]) => lines((await run(command, parts)).stdout)[0];
  const versions = {
    curl: (await version("curl", "--version"))?.split(" ").slice(0, 2).join(" "),
    requests: await version(
      "python3",
      "-c",
      "import requests, urllib3, sys; print(f'requests {requests.__version__}, urllib3 {urllib3.__version__}, Python {sys.version.split()[0]}')",
    ),
    go: (await version("go", "version"))?.split(" ")[2],
  };
  const requests = inEnglish((await asked("python3", "ask.py")).stdout);
  const go = inEnglish((await asked("go", "run", "ask.go")).stdout);
  const answers: Record<string, object> = {};
  const curls: string[] = [];
  for (let first = 0; first < ports.length; first += AT_ONCE)
    curls.push(...(await Promise.all(ports.slice(first, first + AT_ONCE).map(curl))));
  for (const [index, { name }] of ODD_ANSWERS.entries()) {
    const { ours = null, why } = before[name] ?? {};
    const others = { curl: curls[index], requests: requests[index], go: go[index] };
    answers[name] = { ...others, ours, ...(why === undefined ? {} : { why }) };
  }
  writeFileSync(TABLE, `${JSON.stringify({ versions, answers }, null, 2)}\n`);
} finally {
  rmSync(folder, { recursive: true });
}
process.exit();
