import type { IncomingMessage } from "node:http";
import type { Http2ServerRequest } from "node:http2";
import { isMethodCall } from "../rpc/unknown-method.ts";

type Request = IncomingMessage | Http2ServerRequest;

/** Returns the path prefix of a request's page and links, such as `/webhooks`; empty for none. */
export type BasePathReader = (request: Request) => string;

/** Finds the paths of requests without the prefix. */
export interface PrefixRemover {
  /** Adds a route of the service, such as `/webhooks/:id`. */
  addRoute(route: string): void;
  /** The path of a request without the prefix, with the query. */
  pathOf(request: Request): string;
}

/**
 * Proxies may keep the prefix or remove it. If it is also the name of a page, as `/webhooks` is, the rest decides: `/webhooks/docs` has the
 * prefix, because `/docs` is a path of the service, and `/webhooks/7` has lost it.
 */
export function createPrefixRemover(basePath: BasePathReader): PrefixRemover {
  /** Patterns of the service's paths, by route. */
  const routes = new Map<string, RegExp>();
  /** The first segments of its paths. */
  const segments = new Set<string>();
  return {
    addRoute(route) {
      const pattern = route.replaceAll(".", "\\.").replace(/:\w+/, "[\\da-f-]+").replace("*", ".*");
      routes.set(route, new RegExp(`^${pattern}/?$`));
      segments.add(firstSegment(route));
    },
    pathOf(request) {
      const { url = "", method = "" } = request;
      const prefix = basePath(request);
      if (prefix === "" || !url.startsWith(prefix) || !/^(?:[/?]|$)/.test(url.slice(prefix.length)))
        return url;
      const rest = url.slice(prefix.length).replace(/^(?!\/)/, "/");
      const path = pathIn(rest);
      // The prefix alone is the overview, which takes no other methods.
      if (path === "/" ? ["GET", "HEAD"].includes(method) : segments.has(firstSegment(path))) return rest;
      if (isMethodCall({ contentType: undefined, path })) return rest;
      const hasLostPrefix = [...routes.values()].some((route) => route.test(pathIn(url)));
      return hasLostPrefix ? url : rest;
    },
  };
}

function pathIn(url: string): string {
  return url.split("?", 1)[0] as string;
}

function firstSegment(path: string): string {
  return path.split("/", 2)[1] ?? "";
}

/** The built page with its links and files below the prefix, which its scripts read from the element `html`. */
export function withBasePath(page: string, basePath: string): string {
  if (basePath === "") return page;
  return page
    .replace("<html", `<html data-base-path="${basePath}"`)
    .replaceAll(/((?:src|href)="|>)\/(?=\w)/g, `$1${basePath}/`);
}
