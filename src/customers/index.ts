export { makeCustomer } from "./customers.ts";
