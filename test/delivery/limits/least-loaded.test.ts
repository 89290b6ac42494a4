import fc from "fast-check";
import { expect, test } from "vitest";
import { LeastLoaded } from "../../../src/delivery/limits/least-loaded.ts";

const change = fc.record({
  item: fc.nat({ max: 6 }),
  load: fc.option(fc.nat({ max: 40 }), { nil: undefined }),
});

test("the first item has the least load, and has had it for longest, whatever was added, changed and deleted before", () => {
  fc.assert(
    fc.property(fc.array(change, { maxLength: 100 }), (changes) => {
      const items = new LeastLoaded<number>();
      const loads = new Map<number, number>();
      for (const { item, load } of changes) {
        if (load === undefined) {
          items.delete(item);
          loads.delete(item);
        } else {
          items.set(item, load);
          // An item that changes its load comes after those that have it already.
          if (loads.get(item) !== load) loads.delete(item);
          loads.set(item, load);
        }
        const least = Math.min(...loads.values());
        expect(items.first()).toBe([...loads].find(([, each]) => each === least)?.[0]);
        expect(items.size).toBe(loads.size);
        expect(items.has(item)).toBe(loads.has(item));
      }
    }),
  );
});
