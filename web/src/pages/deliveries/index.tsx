import { PageTitle } from "../../parts/page-title.tsx";

/** What became of each delivery. */
export default function DeliveriesPage() {
  return <PageTitle title="Deliveries" />;
}
