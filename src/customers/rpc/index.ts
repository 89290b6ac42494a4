/** CustomerService. */
export { customerService } from "./customers.ts";
