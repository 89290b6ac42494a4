/** Events of the service itself: failed deliveries, health, incidents, switched-off filters and webhooks. */
export { noticeIncidents } from "./incident-notices.ts";
export { noticeDisabled, noticeFailed, noticeFilterStopped, noticeHealth } from "./notices.ts";
