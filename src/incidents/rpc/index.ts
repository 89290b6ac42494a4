/** The methods of IncidentService. */
export { incidentService } from "./incidents.ts";
