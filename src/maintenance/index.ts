/** Jobs of a delivering process that concern several modules: they fold statistics, and erase customers. */
export { customerErasureJob } from "./customer-erasure.ts";
export { FOLD_JOB, FORGOTTEN_JOB } from "./fold.ts";
