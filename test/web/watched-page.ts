import type { Page } from "playwright-core";
import { expect } from "vitest";

/** What a page did that it must not. */
export interface Watch {
  /** Fails the test when there was anything. */
  expectNothing(): void;
}

/** A refused call is an answer like any other, and browsers put every one of them on the console. */
const CALL = /\/webhook\.v1\.\w+\/(\w)(\w+)/;

/** Run in the page; the types of browsers are not those of Node. */
const TELL_VIOLATIONS = `document.addEventListener("securitypolicyviolation", (event) => {
  console.error("violates " + event.violatedDirective + ": " + event.blockedURI + " " + event.sample);
});`;

/**
 * Watches a page for errors on its console, violations of the Content-Security-Policy, files that are not there, and
 * requests to anywhere but its own service.
 *
 * @param calls gets the methods that the service has answered
 */
export async function watch(page: Page, origin: string, calls: Set<string>): Promise<Watch> {
  const seen: string[] = [];
  page.on("console", (message) => {
    const { url } = message.location();
    // Of files it is told below, with their names; an address that is no page's is a page of its own.
    const known = CALL.test(url) || message.text().startsWith("Failed to load resource");
    if (message.type() === "error" && !known) seen.push(`console: ${message.text()}`);
  });
  page.on("pageerror", (error) => seen.push(`uncaught: ${error.message}`));
  page.on("request", (request) => {
    const url = new URL(request.url());
    const ours = url.origin === origin || url.protocol === "data:" || url.protocol === "blob:";
    if (!ours) seen.push(`a request to ${url.href}`);
  });
  page.on("response", (response) => {
    const call = CALL.exec(response.url());
    if (call?.[1] && response.ok()) calls.add(call[1].toLowerCase() + call[2]);
    const isFile = response.request().resourceType() !== "document" && !call;
    if (isFile && response.status() >= 400) seen.push(`${response.status()} for ${response.url()}`);
  });
  await page.addInitScript({ content: TELL_VIOLATIONS });
  return { expectNothing: () => expect(seen).toEqual([]) };
}
