/** The memory limit of the container, in bytes; undefined without a limit. */
export function readMemoryLimit(): number | undefined {
  const memory = process.constrainedMemory();
  // Without a limit, Node returns 0 or a number larger than the memory of any machine.
  return memory > 0 && memory < 2 ** 50 ? memory : undefined;
}
