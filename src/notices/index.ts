/** Events of the service itself: failed deliveries, health, switched-off filters and webhooks. */
export { noticeDisabled, noticeFailed, noticeFilterStopped, noticeHealth } from "./notices.ts";
