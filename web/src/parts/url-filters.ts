import { useCallback, useMemo } from "react";
import { useSearchParams } from "react-router";

interface ChangeOptions {
  replace?: boolean;
  toTop?: boolean;
}

/**
 * Filters that are in the page's address, so that it can be shared, and so that Back undoes them.
 *
 * @param names of the parameters, the same at every call
 * @returns each filter's text, "" where the address has none; and what changes some of them, "" taking one away. With
 *   `replace`, for what is typed, the change is no step of Back. With `toTop`, for another page of a list, it scrolls to the top.
 */
export function useUrlFilters<Name extends string>(
  names: readonly Name[],
): [Record<Name, string>, (changes: Partial<Record<Name, string>>, options?: ChangeOptions) => void] {
  const [parameters, setParameters] = useSearchParams();
  const text = parameters.toString();
  const filters = useMemo(() => {
    const found = new URLSearchParams(text);
    return Object.fromEntries(names.map((name) => [name, found.get(name) ?? ""])) as Record<Name, string>;
  }, [text, names]);
  const change = useCallback(
    (changes: Partial<Record<Name, string>>, { replace = false, toTop = false }: ChangeOptions = {}) => {
      // The address itself: while the machine is busy, what is rendered is from before the latest change.
      const next = new URLSearchParams(window.location.search);
      for (const [name, value] of Object.entries(changes) as [string, string | undefined][]) {
        if (value) next.set(name, value);
        else next.delete(name);
      }
      setParameters(next, { replace, preventScrollReset: !toTop });
    },
    [setParameters],
  );
  return [filters, change];
}
