import type {
  DescMessage,
  DescMethodUnary,
  DescService,
  MessageInitShape,
  MessageShape,
} from "@bufbuild/protobuf";
import { Code, ConnectError, type Transport } from "@connectrpc/connect";
import {
  callUnaryMethod,
  useQuery as connectQuery,
  createConnectQueryKey,
  createQueryOptions,
  useTransport,
} from "@connectrpc/connect-query";
import {
  partialMatchKey,
  QueryClient,
  type UseQueryResult,
  useQuery,
  useQueryClient,
} from "@tanstack/react-query";
import { useCallback } from "react";
import { EndpointService } from "../../../gen/webhook/v1/endpoint_pb.ts";
import { type Webhook, WebhookService } from "../../../gen/webhook/v1/webhook_pb.ts";
import { awaySince } from "./away.ts";

/** Faults that pass: the service starts anew, or the network was away for a moment. */
const PASSING: ReadonlySet<Code> = new Set([Code.Unavailable, Code.Unknown, Code.Internal]);
/** The number of retries of a failed query. */
const RETRIES = 2;
/** The age up to which data is not read again, in milliseconds. */
const FRESH_MS = 5_000;

/** Creates the cache of queries. Cached data is shown at once, and read again if it is older than some seconds. */
export function createQueryClient(): QueryClient {
  return new QueryClient({
    defaultOptions: {
      queries: {
        // Offline, calls fail instead of waiting: a list must not seem current. The service may be on this machine.
        networkMode: "always",
        refetchOnReconnect: true,
        staleTime: FRESH_MS,
        // While the service is away, its first answer has all read anew.
        retry: (failures, error) =>
          failures < RETRIES && awaySince() === undefined && PASSING.has(ConnectError.from(error).code),
      },
      // What changes something is repeated by a person or not at all.
      // Offline, it fails at once: the default waits, and makes the change whenever the network returns.
      mutations: { networkMode: "always", retry: false },
    },
  });
}

/**
 * Whether the session can do anything with a webhook. For a key of an installed app, the list has other apps' webhooks
 * too, without the key that owns them: the page leaves these out.
 */
export function isReachable({ apiKeyId }: Webhook): boolean {
  return apiKeyId !== "";
}

/** The number of items of a page, if a request names none. */
const PAGE_SIZE = 1_000;

/** Options of reading a list. */
export interface AllPagesOptions {
  /** Defaults to true. */
  enabled?: boolean;
  /** The interval between reads, in milliseconds, for a list of one page; longer for longer lists. */
  refreshMs?: number;
  /** The time for which a list that was read before is shown without reading it anew, in milliseconds. */
  freshMs?: number;
}

/** A list that the service returns in pages, read page by page and shown in one. */
export function useAllPages<I extends DescMessage, O extends DescMessage>(
  method: DescMethodUnary<I, O>,
  input: MessageInitShape<I>,
  { enabled = true, refreshMs, freshMs }: AllPagesOptions = {},
): UseQueryResult<MessageShape<O>, ConnectError> {
  const transport = useTransport();
  return useQuery<MessageShape<O>, ConnectError>({
    queryKey: createQueryOptions(method, input, { transport }).queryKey,
    // Comparing thousands of messages field by field takes longer than showing them.
    structuralSharing: false,
    queryFn: ({ signal }) => readAllPages(transport, method, input, signal),
    enabled,
    refetchInterval: (query) =>
      refreshMs !== undefined &&
      refreshMs * Math.max(1, Math.ceil(itemsOf(method, query.state.data) / PAGE_SIZE)),
    ...(freshMs === undefined ? {} : { staleTime: freshMs }),
  });
}

type Fields = Record<string, unknown> & { nextPageToken: string };

async function readAllPages<I extends DescMessage, O extends DescMessage>(
  transport: Transport,
  method: DescMethodUnary<I, O>,
  input: MessageInitShape<I>,
  signal: AbortSignal,
): Promise<MessageShape<O>> {
  const first = await callUnaryMethod(transport, method, input, { signal });
  const all = first as unknown as Fields;
  while (all.nextPageToken !== "") {
    const asked = { ...input, pageToken: all.nextPageToken } as MessageInitShape<I>;
    const page = (await callUnaryMethod(transport, method, asked, { signal })) as unknown as Fields;
    for (const name of listsOf(method)) (all[name] as unknown[]).push(...(page[name] as unknown[]));
    all.nextPageToken = page.nextPageToken;
  }
  return first;
}

function listsOf({ output }: DescMethodUnary): string[] {
  return output.fields.filter(({ fieldKind }) => fieldKind === "list").map(({ localName }) => localName);
}

function itemsOf(method: DescMethodUnary, message: unknown): number {
  if (message === undefined) return 0;
  return Math.max(...listsOf(method).map((name) => ((message as Fields)[name] as unknown[]).length));
}

/** What shows the same things as another service: endpoints consist of webhooks. */
const ALSO = new Map<DescService | DescMethodUnary, DescService>([[WebhookService, EndpointService]]);

/** The key of signing secrets. The audit log records each read, so somebody must have caused it. */
const SECRETS = createConnectQueryKey({
  schema: WebhookService.method.getWebhookSecret,
  cardinality: undefined,
});

const keyOf = (of: DescService | DescMethodUnary) =>
  of.kind === "service"
    ? createConnectQueryKey({ schema: of, cardinality: undefined })
    : createConnectQueryKey({ schema: of, cardinality: undefined });

/**
 * Has everything that the page shows of a service, or of one of its methods, read anew: after something was done that
 * changes it. Resolves once what is shown is current. Signing secrets are read anew only by their method.
 */
export function useReadAnew(): (of: DescService | DescMethodUnary) => Promise<void> {
  const queries = useQueryClient();
  return useCallback(
    async (of) => {
      const keys = [of, ALSO.get(of)].filter((each) => each !== undefined).map(keyOf);
      await Promise.all(
        keys.map((queryKey) =>
          queries.invalidateQueries({
            queryKey,
            predicate: (query) => of.kind === "rpc" || !partialMatchKey(query.queryKey, SECRETS),
          }),
        ),
      );
    },
    [queries],
  );
}

/**
 * The call of a method that changes something. Afterwards, what the page shows of some services or methods is read anew, before the
 * call resolves. Nothing keeps the answer, which may have a secret.
 *
 * @param changed defaults to the method's service
 */
export function useChange<I extends DescMessage, O extends DescMessage>(
  method: DescMethodUnary<I, O>,
  ...changed: (DescService | DescMethodUnary)[]
): (input: MessageInitShape<I>) => Promise<MessageShape<O>> {
  const transport = useTransport();
  const readAnew = useReadAnew();
  return async (input) => {
    const output = await callUnaryMethod(transport, method, input);
    await Promise.all((changed.length > 0 ? changed : [method.parent]).map(readAnew));
    return output;
  };
}

/** The answer of a method, read again at an interval in milliseconds. */
export function useLive<I extends DescMessage, O extends DescMessage>(
  method: DescMethodUnary<I, O>,
  input: MessageInitShape<I>,
  refetchInterval: number,
  enabled = true,
) {
  return connectQuery(method, input, { refetchInterval, enabled });
}
