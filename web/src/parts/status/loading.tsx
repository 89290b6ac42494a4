import { Skeleton, Stack, VisuallyHidden } from "@mantine/core";

const WIDTHS = ["92%", "78%", "85%", "64%"];

/** Stands where something is being read, as high as that will be, so that nothing jumps. */
export function Loading({ lines = 4, height = 20 }: { lines?: number; height?: number }) {
  return (
    <Stack gap="sm" py="xs" aria-busy>
      <VisuallyHidden role="status">Loading</VisuallyHidden>
      {Array.from({ length: lines }, (_, line) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: the lines are all alike
        <Skeleton key={line} height={height} width={WIDTHS[line % WIDTHS.length]} />
      ))}
    </Stack>
  );
}
