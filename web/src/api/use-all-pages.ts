import type { DescMessage, DescMethodUnary, MessageInitShape, MessageShape } from "@bufbuild/protobuf";
import type { ConnectError, Transport } from "@connectrpc/connect";
import { callUnaryMethod, createQueryOptions, useTransport } from "@connectrpc/connect-query";
import { type UseQueryResult, useQuery } from "@tanstack/react-query";

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
