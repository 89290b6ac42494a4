import { HISTORIES, testReads } from "./reads.ts";

testReads(HISTORIES.planless);
