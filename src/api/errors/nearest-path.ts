import { closestMatch } from "leven";

/** The maximum length of a path that is compared, in characters. Unauthenticated callers can send longer ones. */
const MAX_COMPARED_LENGTH = 100;
/** The maximum share of differing characters of a name. */
const MAX_DIFFERENCE = 0.4;

/**
 * Methods that have no REST path, and pages, by names under which callers look for them. The last part of a path that is
 * one of the names, such as `/api/v1/events`, leads there.
 */
const KNOWN_AS: readonly [RegExp, string][] = [
  [/^(?:events?|publish)$/, "/webhook.v1.EventService/PublishEvent"],
  [/^(?:deliver(?:y|ies)|attempts?|logs?)$/, "/webhook.v1.DeliveryService/ListDeliveries"],
  [/^(?:api-?)?keys?$/, "/webhook.v1.ApiKeyService/ListApiKeys"],
  [/^(?:installed-?)?apps?$/, "/webhook.v1.ApiKeyService/ListInstalledApps"],
  [/^(?:stats|statistics|overview)$/, "/webhook.v1.StatsService/GetOverview"],
  [/^(?:replays?|backfills?|recover)$/, "/webhook.v1.ReplayService/StartReplay"],
  [/^endpoints?$/, "/webhook.v1.EndpointService/CreateEndpoint"],
  [/^audit(?:-?log)?$/, "/webhook.v1.AuditService/ListAuditEntries"],
  [/^(?:docs|swagger(?:-ui)?)$/, "/docs"],
  [/^(?:health(?:check)?|ping|status)$/, "/healthz"],
];

/** A path and its HTTP methods. */
export interface ServedPath {
  path: string;
  methods: readonly string[];
}

/**
 * The served path that a caller most likely meant, such as `GET /api/webhook/list`. Paths with the caller's HTTP
 * method are preferred. Case-insensitive.
 *
 * @returns undefined if no path is similar
 */
export function nearestPath(method: string, path: string, served: readonly ServedPath[]): string | undefined {
  const taking = served.filter(({ methods }) => methods.includes(method));
  const last = path.slice(path.lastIndexOf("/") + 1).toLowerCase();
  const near =
    KNOWN_AS.find(([names, known]) => names.test(last) && served.some((each) => each.path === known))?.[1] ??
    closest(
      path,
      taking.map((each) => each.path),
    ) ??
    closest(
      path,
      served.map((each) => each.path),
    );
  const found = served.find((each) => each.path === near);
  if (!found) return undefined;
  return `${found.methods.includes(method) ? method : found.methods.join(" or ")} ${found.path}`;
}

/**
 * A suggestion for a method that does not exist.
 *
 * @param path the path of a call, such as `/webhook.v1.WebhookService/ListWebhook`
 * @param served the paths of all methods
 * @returns the nearest path, or the methods of the service; undefined if neither is similar
 */
export function nearestMethod(path: string, served: readonly string[]): string | undefined {
  if (path.length > MAX_COMPARED_LENGTH) return undefined;
  const [service = "", method = ""] = namesOf(path);
  const sameMethod = served.filter((each) => namesOf(each)[1]?.toLowerCase() === method.toLowerCase());
  const services = [...new Set(served.map((each) => namesOf(each)[0] as string))];
  const nearService = services.includes(service)
    ? service
    : closest(service, [...new Set(sameMethod.map((each) => namesOf(each)[0] as string)), ...services]);
  const exact =
    sameMethod.find((each) => namesOf(each)[0] === nearService) ??
    (sameMethod.length === 1 ? sameMethod[0] : undefined);
  if (exact !== undefined) return `did you mean ${exact}?`;
  if (nearService === undefined) return undefined;
  const methods = served.flatMap((each) => {
    const [ofService, name] = namesOf(each);
    return ofService === nearService ? [name as string] : [];
  });
  const nearMethod = closest(method, methods);
  return nearMethod === undefined
    ? `${nearService} has the methods ${methods.join(", ")}`
    : `did you mean /${nearService}/${nearMethod}?`;
}

/** `/webhook.v1.WebhookService/ListWebhooks` → the service and the method. */
function namesOf(path: string): string[] {
  return path.split("/").filter((part) => part !== "");
}

function closest(name: string, candidates: readonly string[]): string | undefined {
  if (name.length > MAX_COMPARED_LENGTH) return undefined;
  const lower = name.toLowerCase();
  const byLowerCase = new Map(candidates.map((candidate) => [candidate.toLowerCase(), candidate]));
  const near = closestMatch(lower, [...byLowerCase.keys()], {
    maxDistance: Math.max(2, Math.floor(name.length * MAX_DIFFERENCE)),
  });
  return near === undefined ? undefined : byLowerCase.get(near);
}
