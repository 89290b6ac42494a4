import type { DescMethod, DescService, Message } from "@bufbuild/protobuf";
import { type CallOptions, type Client, createClient, type Transport } from "@connectrpc/connect";
import { SERVICES } from "../../src/app/services.ts";
import type { TestApi } from "./test-api.ts";

/** The methods of the contract's services, each by its name as in `WebhookService.ListWebhooks`. */
export const METHODS: [string, DescMethod][] = SERVICES.flatMap((service) =>
  service.methods.map((method): [string, DescMethod] => [`${service.name}.${method.name}`, method]),
);

/** Any service's methods, by their names. */
type AnyClient = Record<string, (request: unknown, options?: CallOptions) => unknown>;

/**
 * Calls a method by its description. Streams the request as one message, and answers the first message of a stream.
 *
 * @param transport defaults to gRPC
 */
export async function callMethod(
  api: TestApi,
  method: DescMethod,
  secret: string,
  request: object,
  transport?: Transport,
): Promise<Message> {
  const client = (transport
    ? createClient(method.parent, transport)
    : api.client(method.parent, secret)) as Client<DescService> as AnyClient;
  const send = client[method.localName] as AnyClient[string];
  if (method.methodKind === "client_streaming") {
    const requests = async function* () {
      yield request;
    };
    return (await send(requests())) as Message;
  }
  if (method.methodKind !== "server_streaming") return (await send(request)) as Message;
  const leaving = new AbortController();
  for await (const answer of send(request, { signal: leaving.signal }) as AsyncIterable<Message>) {
    leaving.abort();
    return answer;
  }
  throw new Error(`${method.name} has answered nothing`);
}
