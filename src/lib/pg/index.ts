/** PostgreSQL through knex. */
export { plainArray, textArray } from "./array-literal.ts";
export {
  eachOnBehalfOf,
  isGivenUp,
  onBehalfOf,
  onBehalfOfAll,
  type Turns,
  turnsOfCall,
} from "./call-signal.ts";
export { connect } from "./connect.ts";
export { budgetWarning, readConnectionBudget } from "./connection-budget.ts";
export {
  type Bindings,
  column,
  count,
  type Db,
  databaseTime,
  openDatabase,
  openDatabases,
  rows,
  run,
  takesWrites,
} from "./database.ts";
export { transactionWithRetry } from "./deadlock.ts";
export { isDamage, isReadOnlyFault, isTransient, UnfitSessionError, untilAnswered } from "./faults.ts";
export { gathering } from "./gathering.ts";
export { LivenessProbe } from "./liveness.ts";
export { checkPooler } from "./pooler.ts";
export { readPrimary, readReplica, type StaleReads } from "./read-replica.ts";
export { parseTarget } from "./target.ts";
