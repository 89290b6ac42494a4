import { type Agent, request as send } from "node:http";

/**
 * The status of the answer to a GET, or to a POST of JSON; 0 without one.
 *
 * @param options.giveUpMs the time after which it is given up, in milliseconds. Defaults to no limit
 */
export function statusOf(
  url: URL,
  agent: Agent,
  key: string,
  body: string | undefined,
  { giveUpMs }: { giveUpMs?: number } = {},
): Promise<number> {
  return new Promise((resolve) => {
    const headers = { "content-type": "application/json", "x-service-key": key };
    const method = body === undefined ? "GET" : "POST";
    const options = { agent, method, headers, ...(giveUpMs === undefined ? {} : { timeout: giveUpMs }) };
    const sent = send(url, options, (response) => {
      response.resume();
      response.on("end", () => resolve(response.statusCode ?? 0));
      response.on("error", () => resolve(0));
    });
    sent.on("timeout", () => sent.destroy(new Error("given up")));
    sent.on("error", () => resolve(0));
    sent.end(body);
  });
}
