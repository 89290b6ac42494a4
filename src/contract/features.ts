/**
 * What this release knows of the data that an older one does not. Before the first row is written that needs one, `requireFeature`
 * requires it. The names are stored: they are never changed or removed.
 */
export const FEATURES: readonly string[] = [
  // Event types that operators register.
  "event-types",
  // API keys that belong to customers.
  "customers",
];
