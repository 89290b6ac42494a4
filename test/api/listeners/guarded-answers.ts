import { expect } from "vitest";

/** Fails unless the headers of an answer say that it may not be stored, shown to other callers or taken for another type. */
export function expectGuarded(header: (name: string) => string | null | undefined, about: string): void {
  expect(header("cache-control"), about).toBe("no-store");
  expect(header("x-content-type-options"), about).toBe("nosniff");
  const vary = header("vary")?.toLowerCase().split(/, */);
  expect(vary, about).toEqual(
    expect.arrayContaining(["x-service-key", "cookie", "origin", "accept-encoding"]),
  );
}
