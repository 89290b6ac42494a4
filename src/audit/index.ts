/** The audit log: who changed what. */
export { auditedCall } from "./actor.ts";
export {
  type AuditAction,
  type AuditRecord,
  type AuditTarget,
  audited,
  deleteOldAuditEntries,
  type Facts,
  OPERATOR,
  type Recorder,
  recordChanges,
} from "./audit-log.ts";
