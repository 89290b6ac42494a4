/** The audit log: who changed what. */
export { actorOf, auditedCall } from "./actor.ts";
export {
  type Actor,
  type AuditAction,
  type AuditRecord,
  type AuditTarget,
  audited,
  deleteOldAuditEntries,
  type Facts,
  OPERATOR,
  type Recorder,
  recordChanges,
  SERVICE_WIDE,
} from "./audit-log.ts";
