/**
 * How long tests wait for what must happen, in milliseconds: five minutes, enough for a machine at an eighth of the usual
 * pace. No test waits longer for a promise of the service to fail, and none measures by it how fast the service is.
 */
export const PATIENCE_MS = 300_000;

/** The interval between two looks at what is waited for, in milliseconds. */
export const LOOK_EVERY_MS = 20;
