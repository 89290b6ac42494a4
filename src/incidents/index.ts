/** Incidents: what fails, by cause and host. */
export { causeOfLatest, type FailureCause, failureCause } from "./causes.ts";
export { causeIn } from "./dns-zones.ts";
export { CERTIFICATES_JOB, SeenCertificates, trackCertificates } from "./host-certificates.ts";
export { readIncidentCounts } from "./incident-counts.ts";
export { type OpenIncident, openIncidentsOf } from "./incidents.ts";
export { COUNT_RECOVERED_JOB, deleteOldIncidents } from "./recovered.ts";
export { type IncidentChange, leaveForgotten, trackIncidents } from "./track.ts";
