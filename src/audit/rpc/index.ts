/** AuditService. */
export { auditService } from "./audit.ts";
